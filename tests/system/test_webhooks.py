"""Webhooks over the wire: real processes, and a receiver that checks them with the convention's library."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.servers.loopback_server import served
from tests.system.stack import SOURCE, Stack, queue_endpoint, running

PRIVATE_TOO = "allow_private_addresses = true\n"


class Receiver:
    """`calls` holds when each call came, its headers and its body; `answers` are given first, then 200s."""

    def __init__(self, *answers: int) -> None:
        self.calls: queue.Queue[tuple[float, dict[str, str], bytes]] = queue.Queue()
        answering = iter([*answers, *[200] * 100])
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                calls.put((time.monotonic(), dict(self.headers.items()), body))
                self.send_response(next(answering))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def next(self) -> tuple[float, dict[str, str], bytes]:
        return self.calls.get(timeout=60)


@contextmanager
def receiver(*answers: int) -> Iterator[Receiver]:
    made = Receiver(*answers)
    with served(made.server):
        yield made


def secret(stack: Stack) -> str:
    """As an operator asks for it, while control runs."""
    command = [sys.executable, "-P", "-m", "stoker.cli", "key", "webhook-secret"]
    command += ["--data-dir", str(stack.folder / "data"), "--config", str(stack.config)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return result.stdout.strip()


def test_a_receiver_gets_the_record_and_can_check_who_sent_it(tmp_path: Path) -> None:
    with (
        receiver() as hook,
        running(tmp_path, PRIVATE_TOO, queue_endpoint("echo", "outputs/echo.py")) as stack,
    ):
        job = stack.run("echo", {"x": 1}, webhook=hook.url)
        _, headers, body = hook.next()
        record = Webhook(secret(stack)).verify(body, headers)
        assert record == {
            **stack.end_of("echo", job),
            "input": {"x": 1},
            "webhook": hook.url,
        }
        assert headers["Content-Type"] == "application/json"
        assert hook.calls.empty()


@pytest.mark.slow
def test_a_private_address_is_not_called_where_the_operator_did_not_allow_it(tmp_path: Path) -> None:
    with receiver() as hook, running(tmp_path, queue_endpoint("echo", "outputs/echo.py")) as stack:
        answer = stack.http.post("/echo/run", json={"input": {"x": 1}, "webhook": hook.url})
        assert answer.status_code == 400
        assert "its host is the loopback address 127.0.0.1; allow_private_addresses" in answer.json()["error"]
        assert hook.calls.empty()


@pytest.mark.slow
def test_a_receiver_that_fails_twice_is_called_again_also_by_a_control_that_was_killed(
    tmp_path: Path,
) -> None:
    with (
        receiver(500, 503) as hook,
        running(tmp_path, PRIVATE_TOO, queue_endpoint("echo", "outputs/echo.py")) as stack,
    ):
        job = stack.run("echo", {"x": 1}, webhook=hook.url)
        first = hook.next()
        stack.kill("control")
        stack.start_control()
        tries = [first, hook.next(), hook.next()]
        assert {headers["webhook-id"] for _, headers, _ in tries} == {first[1]["webhook-id"]}
        assert len({body for *_, body in tries}) == 1
        assert json.loads(first[2])["id"] == job
        assert tries[2][0] - tries[1][0] >= 10
        checker = Webhook(secret(stack))
        for _, headers, body in tries:
            checker.verify(body, headers)
        assert hook.calls.empty()
