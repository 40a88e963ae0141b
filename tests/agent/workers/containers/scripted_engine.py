"""An engine on a socket that says what its script says: slow, refusing, hanging, gone in the middle.

A call that has no line in the script is answered as docker 28 does it, for containers that never do anything.
A line of the script is a function that gets the call, and answers it, or holds it.
"""

from __future__ import annotations

import json
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from urllib.parse import unquote

VERSION = re.compile(r"^/v\d[^/]*")
IMAGE = {"Id": "sha256:1", "RepoDigests": ["a/b@sha256:1"]}
DOCKER = {"Api-Version": "1.47", "Server": "Docker/28.0.1 (linux)"}
PODMAN = {"Api-Version": "1.41", "Libpod-Api-Version": "5.2.0", "Server": "Libpod/5.2.0 (linux)"}
Line = Callable[["Call"], None]


class Call(BaseHTTPRequestHandler):
    """One of the agent's. Its connection is not used again."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.read = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        engine = self.server.engine
        request = f"{self.command} {unquote(VERSION.sub('', self.path))}"
        engine.record(request)
        script = list(engine.script.items())  # at once: a test changes it while calls come
        found = next((line for pattern, line in script if pattern in request), None)
        (found or engine.usual)(self)

    do_POST = do_DELETE = do_HEAD = do_PUT = do_GET

    def answer(self, answer: object, status: int = 200) -> None:
        self.send(b"" if answer is None else json.dumps(answer).encode(), status)

    def send(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        for name, value in self.server.engine.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def steps(self, *lines: object) -> None:
        """One by one, and more may follow."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            data = json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def steps_end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def hung_up_within(self, seconds: float) -> bool:
        return bool(select.select([self.connection], [], [], seconds)[0])

    def send_response(self, code: int, message: str | None = None) -> None:
        self.send_response_only(code, message)  # no headers of this server's own
        self.send_header("Connection", "close")  # who is not told may be just asking again

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
    engine: ScriptedEngine

    def handle_error(self, *_: object) -> None:
        """An agent hangs up as it likes."""


class ScriptedEngine:
    """`script` maps text to search for in "POST /containers/c1/kill"; the first match answers.
    `calls` holds the calls. A call that is held goes on with `release`."""

    def __init__(self, podman: bool) -> None:
        self.headers = PODMAN if podman else DOCKER
        self.script: dict[str, Line] = {}
        self.calls: list[str] = []
        self.containers: set[str] = set()
        self.ended = threading.Event()
        self.released = threading.Event()
        self.address = ""
        self._moved = threading.Condition()
        self._made = 0

    def record(self, request: str) -> None:
        with self._moved:
            self.calls.append(request)
            self._moved.notify_all()

    def until(self, pattern: str, times: int = 1, within_s: float = 60.0) -> None:
        """A call with these words has come so often. Blocking."""
        with self._moved:
            enough = lambda: sum(pattern in one for one in self.calls) >= times  # noqa: E731
            assert self._moved.wait_for(enough, within_s), f"{pattern!r}, {times} times, of {self.calls}"

    def until_empty(self, within_s: float = 60.0) -> None:
        """Every container has been removed. Blocking."""
        with self._moved:
            assert self._moved.wait_for(lambda: not self.containers, within_s), self.containers

    def hang(self, _: Call) -> None:
        self.released.wait(120)

    @staticmethod
    def refuse(message: str, status: int = 500) -> Line:
        return lambda call: call.answer({"message": message}, status)

    def usual(self, call: Call) -> None:
        path = call.path.partition("?")[0].rpartition("/containers/")[2]
        match call.command, path.split("/"):
            case "POST", ["create"]:
                call.answer({"Id": self._make(), "Warnings": []}, 201)
            case "GET", ["json"]:
                labels = {"stoker.agent": "agent-1"}
                call.answer([{"Id": one, "Labels": labels} for one in sorted(self.containers)])
            case "GET", [_, "json"]:
                state = {"Status": "running", "Pid": 0, "OOMKilled": False, "Error": ""}
                call.answer({"Id": path, "State": state, "Config": {"Tty": False, "Labels": {}}})
            case "POST", [_, "attach"]:
                call.send_response(200)
                call.end_headers()
                self.ended.wait(120)  # the connection's end is the end of what it prints
            case "POST", [_, "wait"]:
                self.ended.wait(120)
                call.answer({"StatusCode": 137})
            case "POST", [_, "kill"]:
                call.answer(None, 204)
                self.ended.set()
            case "DELETE", [name]:
                with self._moved:
                    self.containers.discard(name)
                    self._moved.notify_all()
                call.answer(None, 204)
            case _:
                self._around(call)

    def _make(self) -> str:
        with self._moved:  # several calls come at once
            self._made += 1
            made = f"c{self._made}"
            self.containers.add(made)
        return made

    def _around(self, call: Call) -> None:
        path = call.path.partition("?")[0]
        if path.endswith("/version"):
            call.answer({"ApiVersion": "1.47", "Version": "28.0.1", "Components": []})
        elif "/images/" in path and call.command == "GET":
            call.answer(IMAGE)
        elif path.endswith(("/start", "/info", "/_ping")):
            call.answer({"CDISpecDirs": []})
        else:
            call.answer({"message": f"no such call: {path}"}, 404)


@contextmanager
def scripted(folder: Path, *, podman: bool = False) -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine(podman)
    with Server(str(folder / "s"), Call) as server:
        server.engine = engine
        engine.address = f"unix://{folder}/s"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield engine
        finally:
            engine.released.set()
            engine.ended.set()
            server.shutdown()
            thread.join()
