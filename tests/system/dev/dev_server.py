"""`stoker dev` and its neighbours as their users call them: processes in an app's folder, at a platform."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import httpx2

from tests.system.preloaded import Preloaded, executed, preloaded
from tests.system.stack import SOURCE, START_S, STOP_S, Stack, until

COMMAND = [sys.executable, "-P", "-m", "stoker.cli"]
AT_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes its standard input the terminal of a session of its own, whose Ctrl-C reaches the command."""

URL = re.compile(r"^(http://[\w.]+:\d+)   documentation", re.MULTILINE)
FUNCTIONS = "functions = true"
"""The line of stoker.toml that allows them."""


def environment(stack: Stack | None = None, **more: str) -> dict[str, str]:
    """The variables of a user who has `stack` configured, or nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    known = {} if stack is None else {"STOKER_URL": stack.facts["http"], "STOKER_API_KEY": stack.key}
    return {**kept, "PYTHONPATH": str(SOURCE), "COLUMNS": "100", **known, **more}


def stoker(
    folder: Path, *arguments: str, stack: Stack | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, without a terminal."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        status = _start(folder, arguments, environment(stack, **more), output, errors).wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())


def _start(
    folder: Path, arguments: tuple[str, ...], env: dict[str, str], output: IO[Any], errors: IO[Any]
) -> subprocess.Popen[bytes] | Preloaded:
    if not executed():
        files = (output.fileno(), None, errors.fileno())
        return preloaded(SOURCE).start(list(arguments), env, folder, *files)
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
    )


class DevServer:
    def __init__(self, folder: Path, process: subprocess.Popen[bytes] | Preloaded, output: Path) -> None:
        self.folder, self.process, self._output = folder, process, output
        self.http = httpx2.Client(timeout=START_S, trust_env=False)

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def shows(self, text: str) -> None:
        """Waits until it has printed the text."""
        until(
            lambda: text in self.printed or self.process.poll() is not None,
            START_S,
            text,
            lambda: self.printed,
        )
        assert text in self.printed, f"it ended:\n{self.printed}"

    def ready(self) -> None:
        self.shows("documentation")
        found = URL.search(self.printed)
        assert found is not None, self.printed
        self.http.base_url = httpx2.URL(found[1])

    def call(self, path: str, **values: Any) -> httpx2.Response:
        """A queue function."""
        return self.http.post(path, json={"input": values})

    def output(self, path: str, **values: Any) -> Any:
        answer = self.call(path, **values)
        assert answer.status_code == 200, answer.text
        return answer.json()["output"]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self, name: str, text: str) -> None:
        """Saves a file, and waits until the server has read it."""
        before = self.printed.count("changed: ")
        self.write(name, text)
        until(lambda: self.printed.count("changed: ") > before, START_S, "the change", lambda: self.printed)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.http.close()


@contextmanager
def serving(folder: Path, *options: str, stack: Stack | None = None, **more: str) -> Iterator[DevServer]:
    """`stoker dev` in this folder, once it serves."""
    with started(folder, "dev", "--port", "18888", *options, stack=stack, **more) as server:
        server.ready()
        yield server


@contextmanager
def at_terminal(folder: Path, *arguments: str, stack: Stack) -> Iterator[tuple[DevServer, int]]:
    """A command whose terminal is a pty, and the pty's other end: what is written there is typed."""
    output = folder.with_name(f"{folder.name}.{arguments[0]}.terminal")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, *COMMAND, *arguments],
        cwd=folder,
        env=environment(stack, TERM="dumb"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)

    def copy() -> None:
        with open(output, "wb") as file, suppress(OSError):  # EIO, when the last process has closed it
            while data := os.read(ours, 65536):
                file.write(data)
                file.flush()

    output.touch()
    copying = threading.Thread(target=copy)
    copying.start()
    server = DevServer(folder, process, output)
    try:
        yield server, ours
    except BaseException:
        print(f"--- stoker {arguments[0]}\n{server.printed}")
        raise
    finally:
        server.stop()
        copying.join()
        os.close(ours)


@contextmanager
def started(folder: Path, *arguments: str, stack: Stack | None = None, **more: str) -> Iterator[DevServer]:
    """A command that runs until it is stopped."""
    output = folder.with_name(f"{folder.name}.{arguments[0]}.output")
    with open(output, "wb") as file:
        process = _start(folder, arguments, environment(stack, **more), file, file)
    server = DevServer(folder, process, output)
    try:
        yield server
    except BaseException:
        print(f"--- stoker {arguments[0]}\n{server.printed}")
        raise
    finally:
        server.stop()
