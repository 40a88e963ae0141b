"""A hub on loopback whose repository has a licence to accept, as the field's hub serves one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ADDRESS = "127.0.0.1"


class GatedHub:
    """Serves `folder` as `repository`, to `token` once the licence is `accepted`. `breaks` names a file whose
    next download breaks off half-way; `requests` are the paths that were read, with their first byte."""

    def __init__(self, repository: str, folder: Path, token: str) -> None:
        self.repository, self.folder, self.token = repository, folder, token
        self.accepted = False
        self.breaks = ""
        self.requests: list[tuple[str, int]] = []

    def refusal(self, authorization: str | None) -> int:
        if authorization != f"Bearer {self.token}":
            return 401
        return 0 if self.accepted else 403

    def listing(self, revision: str) -> dict[str, Any]:
        paths = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        return {"sha": revision, "siblings": [self._row(path) for path in paths]}

    def _row(self, path: Path) -> dict[str, Any]:
        data = path.read_bytes()
        row = {"rfilename": path.relative_to(self.folder).as_posix(), "size": len(data)}
        if path.suffix == ".safetensors":
            row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return row


@contextmanager
def serving(hub: GatedHub) -> Iterator[str]:
    """Yields the address of the hub."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if (status := hub.refusal(self.headers["Authorization"])) != 0:
                self._send(status, b"access to this model is restricted")
            elif path.startswith(f"/api/models/{hub.repository}"):
                self._send(200, json.dumps(hub.listing(path.rpartition("/")[2])).encode())
            else:
                self._file(path.removeprefix(f"/{hub.repository}/resolve/").partition("/")[2])

        def _file(self, name: str) -> None:
            begins_at = int((self.headers["Range"] or "bytes=0-")[6:-1])
            hub.requests.append((name, begins_at))
            data = (hub.folder / name).read_bytes()
            broken, hub.breaks = hub.breaks == name, "" if hub.breaks == name else hub.breaks
            self.send_response(206 if begins_at else 200)
            if begins_at:
                self.send_header("Content-Range", f"bytes {begins_at}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - begins_at))
            self.end_headers()
            self.wfile.write(data[begins_at : len(data) // 2 if broken else None])
            self.close_connection = self.close_connection or broken

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((ADDRESS, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{ADDRESS}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
