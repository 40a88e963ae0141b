"""URL inputs from the job to the handler, through every real process: fetched once, and never from inside."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.stack import Stack, files_below, queue_endpoint, running

FETCH = queue_endpoint("fetch", "access/fetches.py")
ASYNC = queue_endpoint("later", "access/fetches.py", concurrency=2).replace(":handler", ":handler_async")
PRIVATE_ALLOWED = "allow_private_addresses = true\n"


class Web:
    """Answers with its path, and counts."""

    def __init__(self) -> None:
        web = self
        self.requests: list[tuple[str, str | None]] = []

        class Pages(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tag = self.headers["If-None-Match"]
                web.requests.append((self.path, tag))
                self.send_response(304 if tag else 200)
                self.send_header("ETag", '"1"')
                body = b"" if tag else self.path.encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def output(stack: Stack, endpoint: str, job_input: dict[str, Any]) -> Any:
    record = stack.runsync(endpoint, job_input)
    assert record["status"] == "COMPLETED", record
    return record["output"]


def test_an_input_is_fetched_once_and_kept_over_a_restart(tmp_path: Path, web: Web) -> None:
    with running(tmp_path, PRIVATE_ALLOWED, FETCH, ASYNC) as stack:
        job_input = {"url": f"{web.url}/a?sig=hunter2", "media_types": ["text/*"]}
        first = output(stack, "fetch", job_input)
        assert (first["body"], first["path"], first["media_type"]) == (
            "/a?sig=hunter2",
            "input-0.txt",
            "text/plain",
        )
        assert output(stack, "fetch", job_input) == first
        stack.kill("agent")
        stack.start_agent()
        assert output(stack, "fetch", job_input) == first
        assert web.requests == [
            ("/a?sig=hunter2", None),
            ("/a?sig=hunter2", '"1"'),
            ("/a?sig=hunter2", '"1"'),
        ]
        many = output(stack, "later", {"urls": [f"{web.url}/{n}" for n in range(5)]})
        assert many["bodies"] == [f"/{n}" for n in range(5)]
        refused = output(stack, "fetch", {"url": f"{web.url}/b", "max_bytes": 1})
        assert refused["reason"] == "too_large"
        assert not [path for path in files_below(tmp_path / "agent") if "hunter2" in path.name]
        assert "hunter2" not in stack.log("agent") + stack.log("control")


@pytest.mark.slow
def test_an_input_from_inside_is_refused(tmp_path: Path, web: Web) -> None:
    with running(tmp_path, FETCH) as stack:
        refused = output(stack, "fetch", {"url": f"{web.url}/a?sig=hunter2"})
        assert refused["reason"] == "private_address"
        assert "is refused: its host is the loopback address 127.0.0.1" in refused["refused"]
        assert "hunter2" not in refused["refused"]
        assert web.requests == []
