"""A registry on loopback that holds one small image and asks for a password: just what a pull needs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

USER, PASSWORD = "robot", "swordfish"
SAYS = '#include <stdio.h>\nint main(void) { puts("pulled"); return 0; }\n'
DOCKER = "application/vnd.docker."
MANIFEST = DOCKER + "distribution.manifest.v2+json"


class Registry:
    """`requests`: the paths that were asked for with the right password. `hang`: calls are taken in
    silence."""

    def __init__(self, program: bytes) -> None:
        self.requests: list[str] = []
        self.hang = threading.Event()
        self.released = threading.Event()
        self._blobs: dict[str, bytes] = {}
        self._manifests: dict[str, bytes] = {}
        self.program = program
        self.password = PASSWORD
        self.publish(program)

    def publish(self, program: bytes) -> None:
        """As what the tag 1 means from now on. What it meant before can still be had by its digest."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            entry = tarfile.TarInfo("says")
            entry.size, entry.mode = len(program), 0o755
            tar.addfile(entry, io.BytesIO(program))
        packed = gzip.compress(layer.getvalue(), mtime=0)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/says"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
        }
        about = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._blob(about, DOCKER + "container.image.v1+json"),
            "layers": [self._blob(packed, DOCKER + "image.rootfs.diff.tar.gzip")],
        }
        made = json.dumps(manifest).encode()
        self.digest = _digest(made)
        self._manifests |= {"1": made, self.digest: made}

    def _blob(self, data: bytes, kind: str) -> dict[str, object]:
        self._blobs[_digest(data)] = data
        return {"mediaType": kind, "size": len(data), "digest": _digest(data)}

    def answer(self, path: str, allowed: str) -> tuple[int, str, bytes]:
        if self.hang.is_set():
            self.released.wait(60)
        right = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if allowed != f"Basic {right}":
            reported = {"code": "UNAUTHORIZED", "message": f"who are you? not {allowed}"}
            return 401, "application/json", json.dumps({"errors": [reported]}).encode()
        self.requests.append(path)
        if path == "/v2/":
            return 200, "application/json", b"{}"
        if (manifest := self._manifests.get(path.removeprefix("/v2/a/b/manifests/"))) is not None:
            return 200, MANIFEST, manifest
        found = self._blobs.get(path.removeprefix("/v2/a/b/blobs/"))
        if found is not None:
            return 200, "application/octet-stream", found
        missing = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
        return 404, "application/json", json.dumps({"errors": [missing]}).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def registry(folder: Path) -> Iterator[tuple[Registry, str]]:
    """And where it listens."""
    held = Registry(_program(folder))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, data = held.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="here"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", _digest(data))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """An engine hangs up as it likes."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield held, f"127.0.0.1:{server.server_address[1]}"
        finally:
            held.released.set()
            server.shutdown()
            thread.join()


def _program(folder: Path) -> bytes:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler: the registry's image is one static program")
    source, made = folder / "says.c", folder / "says"
    source.write_text(SAYS)
    subprocess.run([compiler, "-static", "-Os", "-o", made, source], check=True, capture_output=True)
    return made.read_bytes()
