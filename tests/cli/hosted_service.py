"""A scripted service on loopback that plays one job of a hosted model for the commands that call it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESULT = b"the bytes of what was made"


class Service(ThreadingHTTPServer):
    """`events` are what the stream says before its end, `record` the end; the stream breaks `breaks` times.
    `asked`: GET with the key that came along, POST of JSON with the body, of a file with (type, bytes)."""

    def __init__(self, endpoint: str, output: dict[str, Any], result_as: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.stream = f"/v2/{endpoint}/stream/j-u1"
        self.files = f"/v2/{endpoint}/files"
        self.asked: list[tuple[str, str, Any]] = []
        self.run_answer: tuple[int, Any] = (200, {"id": "j-u1", "status": "IN_QUEUE"})
        output = {result_as: f"{self.url}/signed", **output}
        self.record = {"id": "j-u1", "status": "COMPLETED", "executionTime": 812, "output": output}
        self.events: list[tuple[str, Any]] = []
        self.breaks = 0
        self.result_status = 200

    def posted(self, path: str) -> list[Any]:
        return [body for method, asked, body in self.asked if method == "POST" and asked.startswith(path)]


class _Answer(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith(self.server.files):
            self.server.asked.append(("POST", self.path, (self.headers["Content-Type"], body)))
            name = self.path.rpartition("name=")[2]
            self._send(200, json.dumps({"url": f"{self.server.url}/given/{name}"}).encode())
        else:
            self.server.asked.append(("POST", self.path, json.loads(body) if body else None))
            status, answer = self.server.run_answer
            self._send(status, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path, self.headers.get("Authorization")))
        if self.path == "/signed":
            self._send(self.server.result_status, RESULT)
        elif self.path == self.server.stream:
            events = list(self.server.events)
            self.server.breaks -= 1
            if self.server.breaks < 0:
                events.append(("end", self.server.record))
            text = "".join(f"event: {kind}\ndata: {json.dumps(value)}\n\n" for kind, value in events)
            self._send(200, text.encode())
        else:
            self._send(200, json.dumps(self.server.record).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""


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
