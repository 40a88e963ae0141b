"""Local files as inputs of a job in this process: a server on loopback gives each a URL while the job runs.

The hosted models take URLs only, and the handler that runs here is theirs. Nothing but the named files is
served.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from stoker.cli.errors import CliError


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        path = self.server.files.get(unquote(self.path))
        if path is None:
            self.send_error(404)
            return
        with path.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)

    def log_message(self, *_: object) -> None:
        """Logs nothing: the terminal is the job's."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: Mapping[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files


@contextmanager
def served(job_input: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the input, in which the names of local files are URLs, where the schema wants URLs; a name may
    begin with @, as it must where there is no schema. Raises CliError for a file that is not there."""
    files = {
        name: Path(value.removeprefix("@"))
        for name, value in job_input.items()
        if schema["properties"].get(name, {}).get("format") == "uri" and _is_path(value)
    }
    for name, path in files.items():
        if not path.is_file():
            raise CliError(f"{name}: there is no file {path}; give a file of this machine, or an http(s) URL")
    with served_as(job_input, files) as found:
        yield found


@contextmanager
def served_as(job_input: Mapping[str, Any], files: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    """Yields the input with the URL of each of these files, by the name of its value."""
    if not files:
        yield dict(job_input)
        return
    paths = {f"/{name}/{path.name}": path for name, path in files.items()}
    with _Server(paths) as server:
        threading.Thread(target=server.serve_forever, name="local files", daemon=True).start()
        try:
            base = f"http://127.0.0.1:{server.server_address[1]}"
            yield {**job_input, **{name: f"{base}/{name}/{quote(path.name)}" for name, path in files.items()}}
        finally:
            server.shutdown()


def _is_path(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "://" not in value and not value.startswith("data:")
