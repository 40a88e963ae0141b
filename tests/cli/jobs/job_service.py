"""A scripted service on loopback for the commands that are plain callers."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service(ThreadingHTTPServer):
    """`answers`: for each operation, or short path, what it says call by call; the last one for ever."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have gone; print any other error on the terminal, which fails the test."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.requests: list[tuple[str, Any, dict[str, str]]] = []

    def says(self, operation: str, *bodies: Any, status: int = 200) -> None:
        self.answers[operation] = [(status, body) for body in bodies]

    def next(self, operation: str) -> tuple[int, Any]:
        script = self.answers[operation]
        return script.pop(0) if len(script) > 1 else script[0]

    def bodies(self, operation: str) -> list[Any]:
        return [body for path, body, _ in self.requests if path.split("?")[0].endswith(operation)]


class _Answer(BaseHTTPRequestHandler):
    server: Service

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.requests.append((f"{self.command} {self.path}", body, dict(self.headers.items())))
        path = self.path.split("?")[0]
        parts = path.replace("/v1/endpoints/", "/v2/").split("/")
        operation = parts[3] if len(parts) > 3 else path
        if "text/event-stream" in self.headers.get("Accept", ""):
            operation = "events"
        status, answer = self.server.next(operation)
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _any

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""


def events(*reported: tuple[str, str, Any]) -> str:
    """Server-sent events from (kind, id, value)."""
    lines = []
    for kind, number, value in reported:
        lines += [f"event: {kind}", *([f"id: {number}"] if number else []), f"data: {json.dumps(value)}", ""]
    return "\n".join(lines) + "\n"
