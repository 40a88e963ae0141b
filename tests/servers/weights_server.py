"""A server of weights on loopback, as a hub or a mirror: sends files, resumes, and fails on demand."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stoker.wire.messages import LockedWeights, WeightsFile

REPOSITORY, COMMIT = "owner/repo", "c0ffee"


def locked(name: str, files: dict[str, bytes]) -> LockedWeights:
    """The entry of these files, of the hub."""
    made = (WeightsFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items())
    return LockedWeights(name, f"huggingface:{REPOSITORY}", COMMIT, tuple(made))


def put(folder: Path, files: dict[str, bytes]) -> None:
    """As an operator copies them there."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


class WeightsServer:
    """`files` by the path of their URL. `statuses` are answered instead; a body ends after `breaks_after`
    bytes, and waits for `gate` after `gate_at` bytes, when `halfway` is set. `resumes`: it knows ranges.
    `redirects`: it sends callers to another address first. `encoding` labels each body. `seen`: path, Range
    and Authorization of each request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.statuses: dict[str, int] = {}
        self.breaks_after: int | None = None
        self.gate: threading.Event | None = None
        self.gate_at = 0
        self.resumes = True
        self.encoding = ""
        self.redirects: dict[str, str] = {}
        self.halfway = threading.Event()
        self.seen: list[tuple[str, str | None, str | None]] = []
        self.sent_bytes = 0
        self.url = ""

    def hub(self, files: dict[str, bytes]) -> None:
        self.files |= {f"/{REPOSITORY}/resolve/{COMMIT}/{path}": data for path, data in files.items()}

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, wanted = request.path, request.headers.get("Range")
        self.seen.append((path, wanted, request.headers.get("Authorization")))
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        status = self.statuses.get(path, 200 if path in self.files else 404)
        if status != 200:
            request.send_response(status)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        data, begins = self.files[path], 0
        if wanted and self.resumes:
            begins = int(wanted.removeprefix("bytes=").removesuffix("-"))
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {begins}-{len(data) - 1}/{len(data)}")
        else:
            request.send_response(200)
        if self.encoding:
            request.send_header("Content-Encoding", self.encoding)
        request.send_header("Content-Length", str(len(data) - begins))
        request.end_headers()
        self._send(request, data[begins:])

    def _send(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        if self.gate is not None:
            request.wfile.write(data[: self.gate_at])
            request.wfile.flush()
            self.sent_bytes += min(len(data), self.gate_at)
            self.halfway.set()
            self.gate.wait(60)
            data = data[self.gate_at :]
        if self.breaks_after is not None:
            data = data[: self.breaks_after]
        with contextlib.suppress(ConnectionError):
            request.wfile.write(data)
            self.sent_bytes += len(data)


@contextlib.contextmanager
def weights_server() -> Iterator[WeightsServer]:
    serves = WeightsServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(ConnectionError):
                serves.answer(self)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serves.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield serves
    finally:
        if serves.gate is not None:
            serves.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
