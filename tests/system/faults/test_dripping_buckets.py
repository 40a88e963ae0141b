"""Buckets of callers that drip a byte at a time: others' files are uploaded, a cancel ends the wait, and the
agent ends at SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.stack import Stack, fetched, queue_endpoint, running, until

pytestmark = pytest.mark.slow

PORTS = 8
END_S = 30.0
"""Far less than the deadline of an upload, and than a drip without end."""


class DripServer:
    """Answers each connection with a byte every 0.2 s, and never to the end. `asked`: connections so far."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = 0
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                connected, _ = self._listener.accept()
                self.asked += 1
                self.open += 1
                self._threads.append(threading.Thread(target=self._drip, args=[connected]))
                self._threads[-1].start()

    def _drip(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError), connected:
            connected.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not self._over.wait(0.2):
                connected.sendall(b"x")
        self.open -= 1

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def buckets() -> Iterator[list[DripServer]]:
    made = [DripServer() for _ in range(PORTS)]
    yield made
    for one in made:
        one.close()


def bucket_at(server: DripServer) -> dict[str, Any]:
    return {
        "accessId": "id",
        "accessSecret": "secret",
        "bucketName": "own",
        "endpointUrl": f"http://127.0.0.1:{server.port}",
    }


def attacked(stack: Stack, buckets: list[DripServer]) -> list[str]:
    jobs = [
        stack.run("file", {"text": "bad"}, s3Config=bucket_at(one), policy={"ttl": 3_600_000})
        for one in buckets
    ]
    until(lambda: all(one.asked for one in buckets), 60, "an upload to each bucket", lambda: str(jobs))
    return jobs


def others_go_on(stack: Stack) -> None:
    record = stack.runsync("file", {"text": "good day"})
    assert record["status"] == "COMPLETED", record
    assert fetched(record["output"]["greeting"]).content == b"good day"


def test_eight_buckets_that_drip_hold_up_no_other_upload_and_not_the_agents_end(
    tmp_path: Path, buckets: list[DripServer]
) -> None:
    endpoint = queue_endpoint("file", "files/file_ok.py")
    with running(tmp_path, "allow_private_addresses = true\n", endpoint) as stack:
        jobs = attacked(stack, buckets)
        others_go_on(stack)
        for job in jobs[: PORTS // 2]:
            stack.http.post(f"/file/cancel/{job}")
        until(
            lambda: not any(one.open for one in buckets[: PORTS // 2]), 10, "an end of the cancelled uploads"
        )
        assert all(one.open for one in buckets[PORTS // 2 :])
        others_go_on(stack)
        stack.agent.send_signal(signal.SIGTERM)
        assert stack.agent.wait(END_S) == 0
        stack.start_agent()
        others_go_on(stack)
