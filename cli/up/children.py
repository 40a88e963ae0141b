"""Performs what `cli.supervisor` decides, on real processes: starts, signals, reaps them, hears of them.

Each child is in a session of its own, so that a terminal's Ctrl-C reaches only us, and asks the kernel to
end with us. What it prints goes to its log file. An exit is heard through a pidfd, readiness through a pipe.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.cli import supervisor as sv
from stoker.cli.parents import VARIABLE as PARENT
from stoker.cli.readiness import Facts, understand

AllFacts = Mapping[str, Facts]


@dataclass(frozen=True, slots=True)
class Launch:
    """`--ready-fd N` is added to `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path


class Children:
    """`launch` makes the command line of a child, from what those before it (and it itself) have told."""

    def __init__(
        self,
        names: tuple[str, ...],
        launch: Callable[[str, AllFacts], Launch],
        say: Callable[[str], None],
        all_ready: Callable[[AllFacts], None],
    ) -> None:
        self._state = sv.supervise(*names)
        self._launch = launch
        self._say = say
        self._all_ready = all_ready
        self._facts: dict[str, Facts] = {}
        self._running: dict[str, _Running] = {}
        self._events: asyncio.Queue[sv.Event] = asyncio.Queue()
        self._code: int | None = None

    async def run(self) -> int:
        """Until all of them have ended; then the exit status. Nothing is left when it returns."""
        self._feed(sv.Begin(_now()))
        try:
            while self._code is None:
                self._feed(await self._next())
            return self._code
        finally:
            self._kill_the_rest()

    def stop(self) -> None:
        """The first time in order, the second time at once. For signal handlers on the loop."""
        self._events.put_nowait(sv.StopAsked(_now()))

    def pid(self, name: str) -> int | None:
        running = self._running.get(name)
        return running.process.pid if running else None

    async def _next(self) -> sv.Event:
        try:
            async with asyncio.timeout_at(sv.wake_at(self._state)):
                return await self._events.get()
        except TimeoutError:
            return sv.Tick(_now())

    def _feed(self, event: sv.Event) -> None:
        self._state, commands = sv.step(self._state, event)
        for command in commands:
            self._perform(command)

    def _perform(self, command: sv.Command) -> None:
        match command:
            case sv.Start(name):
                self._start(name)
            case sv.Terminate(name) if name in self._running:
                self._running[name].terminate()
            case sv.Kill(name) if name in self._running:
                self._running[name].kill()
            case sv.Say(text):
                self._say(text)
            case sv.AllReady():
                self._all_ready(self._facts)
            case sv.Finish(code):
                self._code = code
            case _:
                pass  # a signal for one that has just ended: its exit is on its way to us

    def _start(self, name: str) -> None:
        launch = self._launch(name, self._facts)

        def ready(facts: Facts) -> None:
            self._facts[name] = facts
            self._events.put_nowait(sv.BecameReady(_now(), name))

        def exited(status: int) -> None:
            del self._running[name]
            self._events.put_nowait(sv.Exited(_now(), name, _why(status, launch.log)))

        self._running[name] = _Running(launch, ready, exited)

    def _kill_the_rest(self) -> None:
        """Only after an error of our own is anything left here."""
        for running in tuple(self._running.values()):
            running.kill()
            running.process.wait()
            running.close()


class _Running:
    """One started process and the two descriptors that tell of it."""

    def __init__(self, launch: Launch, ready: Callable[[Facts], None], exited: Callable[[int], None]) -> None:
        self._ready, self._exited = ready, exited
        self._line = b""
        self._pipe, write = os.pipe()
        with open(launch.log, "ab") as log:
            try:
                self.process = subprocess.Popen(
                    (*launch.argv, "--ready-fd", str(write)),
                    env={**launch.env, PARENT: str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write,),
                    start_new_session=True,
                )
            except BaseException:
                os.close(self._pipe)
                raise
            finally:
                os.close(write)
        self._pidfd = os.pidfd_open(self.process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._read)
        loop.add_reader(self._pidfd, self._reap)

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        """With its group: what it started and did not give a session of its own."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in (self._pipe, self._pidfd):
            if fd >= 0:
                loop.remove_reader(fd)
                os.close(fd)
        self._pipe = self._pidfd = -1

    def _read(self) -> None:
        data = os.read(self._pipe, 65536)
        self._line += data
        if data and not self._line.endswith(b"\n"):
            return
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        facts = understand(self._line)
        if facts is not None:
            self._ready(facts)

    def _reap(self) -> None:
        status = self.process.wait()  # does not wait: the pidfd has told that it has ended
        self.close()
        self._exited(status)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _why(status: int, log: Path) -> str:
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    last = last_line(log)
    return f"{how}; the last line of {log.name}: {last}" if last else how


def last_line(log: Path) -> str:
    """The last line that says something, without the rest of a file that may be large."""
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
