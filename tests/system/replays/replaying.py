"""`stoker replay` as its own process, and a server whose files may change."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.stack import HANDLERS, SOURCE, Stack

FAULTS = HANDLERS / "failing" / "seeded_faults.py"
REPLAY_S = 120.0


def replay(stack: Stack, job: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Its status, the verdict, and what it says beside."""
    environment = {"PYTHONPATH": str(SOURCE), "STOKER_URL": stack.facts["http"], "STOKER_API_KEY": stack.key}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "stoker.cli", "replay", job, "--json", *options],
        check=False,
        env={**os.environ, **environment},
        cwd=stack.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=REPLAY_S,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a server of these files, which are read at each request."""

    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files[self.path.partition("?")[0]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def written(folder: Path, name: str, body: bytes) -> Path:
    path = folder / name
    path.write_bytes(body)
    return path
