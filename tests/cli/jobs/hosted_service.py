"""A scripted service on loopback that plays one job of a hosted model for the commands that call it."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESULT = b"the bytes of what was made"


class Service(ThreadingHTTPServer):
    """`events` are what the stream says before its end, `record` the end; the stream breaks `breaks` times.
    `looks`: what a look at the job finds, one after the other, the last one from then on; the end, without
    any. The stream is held until the job was `looked_at` so many times. `asked`: GET with the key that came
    along, POST of JSON with the body, of a file with (type, bytes). `properties`: of the input's schema."""

    def __init__(self, endpoint: str, output: dict[str, Any], result_as: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.stream = f"/v2/{endpoint}/stream/j-u1"
        self.files = f"/v2/{endpoint}/files"
        self.requests: list[tuple[str, str, Any]] = []
        self.run_answer: tuple[int, Any] = (200, {"id": "j-u1", "status": "IN_QUEUE"})
        self.cancel_answer: tuple[int, Any] = (200, {"id": "j-u1", "status": "CANCELLED"})
        output = {result_as: f"{self.url}/signed", **output}
        self.record = {"id": "j-u1", "status": "COMPLETED", "executionTime": 812, "output": output}
        self.events: list[tuple[str, Any]] = []
        self.breaks = 0
        self.result_status = 200
        self.endpoint, self.properties = endpoint, dict[str, Any]()
        self.looks: list[dict[str, Any]] = []
        self.looked_at = 0
        self.looked = threading.Semaphore(0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have gone; print any other error on the terminal, which fails the test."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def posted(self, path: str) -> list[Any]:
        return [
            body
            for method, requested, body in self.requests
            if method == "POST" and requested.startswith(path)
        ]


class _Answer(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith(self.server.files):
            self.server.requests.append(("POST", self.path, (self.headers["Content-Type"], body)))
            name = self.path.rpartition("name=")[2]
            self._send(200, json.dumps({"url": f"{self.server.url}/given/{name}"}).encode())
        else:
            self.server.requests.append(("POST", self.path, json.loads(body) if body else None))
            cancels = "/cancel/" in self.path
            status, answer = self.server.cancel_answer if cancels else self.server.run_answer
            self._send(status, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self.server.requests.append(("GET", self.path, self.headers.get("Authorization")))
        if self.path == "/signed":
            self._send(self.server.result_status, RESULT)
        elif self.path == "/openapi.json":
            schemas = {f"{self.server.endpoint}.input": {"properties": self.server.properties}}
            self._send(200, json.dumps({"components": {"schemas": schemas}}).encode())
        elif self.path == self.server.stream:
            for _ in range(self.server.looked_at):
                assert self.server.looked.acquire(timeout=20)
            events = list(self.server.events)
            self.server.breaks -= 1
            if self.server.breaks < 0:
                events.append(("end", self.server.record))
            self._send(200, "".join(_events(events)).encode())
        else:
            looks = self.server.looks
            found = (looks.pop(0) if len(looks) > 1 else looks[0]) if looks else self.server.record
            self._send(200, json.dumps(found).encode())
            self.server.looked.release()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""


def _events(events: list[tuple[str, Any]]) -> Iterator[str]:
    """A chunk's id is its attempt and its place; one that comes again after a break is not shown again."""
    attempt = 1
    for n, (kind, value) in enumerate(events):
        attempt = value["attempt"] if kind == "reset" else attempt
        number = {"reset": f"id: {attempt}--1\n", "chunk": f"id: {attempt}-{n}\n"}.get(kind, "")
        yield f"event: {kind}\n{number}data: {json.dumps(value)}\n\n"


async def at_once(seconds: float) -> None:
    """In place of a pause."""


@contextlib.contextmanager
def serving(service: Service) -> Iterator[Service]:
    with service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()
