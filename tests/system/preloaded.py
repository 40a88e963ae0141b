"""Starts `stoker` commands in a moment: a server process imports what they import, once, and forks.

A command starts with the arguments, the environment, the folder and the open files that it is given, and is a
process of its own, with a pid, signals and an exit status. Two things differ from one that was executed: its
parent is the server, and the kernel shows the server's command line and first environment for it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST = 1 << 20  # of a message, in bytes


class Server:
    """Forks for one test process, and ends with it. Any thread of that process may ask."""

    def __init__(self, source: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__], env={**environment, "PYTHONPATH": str(source)}, stdin=theirs
            )
        self._statuses: dict[int, int] = {}
        self._changed = threading.Condition()
        self._starting = threading.Lock()
        self._started = queue.SimpleQueue[int | None]()
        self._over = False
        self._receiving = threading.Thread(target=self._receive, name="preloaded commands", daemon=True)
        self._receiving.start()

    def start(
        self,
        command: list[str],
        env: Mapping[str, str],
        folder: Path,
        log: int,
        fd: int | None = None,
        errors: int | None = None,
    ) -> Preloaded:
        """Writes what it prints to `log`, or its errors to `errors`, and has `fd` as its descriptor 3."""
        request = json.dumps({"command": command, "env": dict(env), "folder": str(folder)})
        files = [log, log if errors is None else errors, *([] if fd is None else [fd])]
        with self._starting:
            socket.send_fds(self._socket, [request.encode()], files)
            pid = self._started.get()
        assert pid is not None, "the server of preloaded commands has ended"
        return Preloaded(self, pid)

    def status(self, pid: int, until: float | None) -> int | None:
        """The exit status of a process, as subprocess has it; None if it still runs at that time."""
        left = None if until is None else max(0.0, until - time.monotonic())
        with self._changed:
            self._changed.wait_for(lambda: pid in self._statuses or self._over, left)
            assert pid in self._statuses or not self._over, "the server of preloaded commands has ended"
            return self._statuses.get(pid)

    def _receive(self) -> None:
        with contextlib.suppress(OSError):  # it was killed
            while message := self._socket.recv(LONGEST):
                answer = json.loads(message)
                if "started" in answer:
                    self._started.put(answer["started"])
                    continue
                with self._changed:
                    self._statuses[answer["ended"]] = answer["status"]
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._started.put(None)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait()
        self._receiving.join()
        self._socket.close()


def executed() -> bool:
    """Whether commands are executed, and import all anew, as operators start them: so the slow tests do. The
    loader reads its variable when it executes."""
    return bool({"LD_LIBRARY_PATH", "STOKER_TESTS_EXECUTE"} & os.environ.keys())


_servers: dict[str, Server] = {}


def preloaded(source: Path) -> Server:
    """The one of this process for that source, which starts it when it first needs one."""
    found = _servers.get(str(source))
    if found is None:
        found = _servers[str(source)] = Server(source)
    return found


def close() -> None:
    """At the end of the tests."""
    while _servers:
        _servers.popitem()[1].close()


class Preloaded:
    """A started command; has what subprocess.Popen has."""

    def __init__(self, server: Server, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        return self._server.status(self.pid, 0.0)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        status = self._server.status(self.pid, until)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("stoker", timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end was not told yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Until the test process closes its end. A process that it forks returns its request and its files."""
    living: dict[int, int] = {}
    """Process ids by the descriptor that is readable when the process has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fd)
                    _send_end(requests, key.fd, living.pop(key.fd))
                    continue
                message, files, _, _ = socket.recv_fds(requests, LONGEST, 3)
                if not message:
                    return None
                if (pid := os.fork()) == 0:
                    return json.loads(message), files
                for file in files:
                    os.close(file)
                ends = os.pidfd_open(pid)
                living[ends] = pid
                selector.register(ends, selectors.EVENT_READ)
                requests.send(json.dumps({"started": pid}).encode())


def _send_end(requests: socket.socket, ends: int, pid: int) -> None:
    os.close(ends)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    requests.send(json.dumps({"ended": pid, "status": status}).encode())


def _import() -> None:
    gc.disable()  # all of it stays
    import typer.main

    import stoker.cli.agent.process
    import stoker.cli.control.process
    import stoker.cli.dev.deploying
    import stoker.cli.dev.dev
    import stoker.cli.dev.logs
    import stoker.cli.main

    typer.main.get_command = functools.cache(typer.main.get_command)  # a tenth of a second for each command
    typer.main.get_command(stoker.cli.main.app)
    for name in ("anyio._backends._asyncio", "httpcore2"):  # what a command's first request imports
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()


def _run(request: dict[str, Any], files: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *files]):
        os.dup2(file, number)
    os.closerange(1 + len(files), 1024)
    sys.argv = ["stoker", *request["command"]]
    from stoker.cli.main import main

    main(request["command"])  # given to it: control and agents run in this process, which has imported them


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # as the commands have it
    _import()
    with socket.socket(fileno=os.dup(0)) as requests:
        request = serve(requests)
    if request:
        _run(*request)


if __name__ == "__main__":
    _main()
