"""The child processes of `stoker up`: started, signalled and reaped as `cli.up.supervisor` decides.

Each child has a session of its own, so that the terminal's Ctrl-C reaches only `stoker up`, and the kernel
ends it with its parent. Its output goes to its log file. Its exit is reported by a pidfd, its readiness by a
pipe.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from stoker.agent.workers.processes.exit_reasons import signal_name
from stoker.cli.processes.parents import VARIABLE as PARENT
from stoker.cli.processes.readiness import Facts, parse_ready, parse_waits
from stoker.cli.up import events as ev
from stoker.cli.up import supervisor as sv

AllFacts = Mapping[str, Facts]


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a child; `--ready-fd N` is appended to `argv`. It inherits the descriptors `fds`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    fds: tuple[int, ...] = ()


class Children:
    """The running children. `launch` makes the command of a child from the facts of all children so far, or
    of a successor, which waits for the end of the child's process before it.
    `on_report` is called with the lines that a child sends after it was ready."""

    def __init__(
        self,
        names: tuple[str, ...],
        launch: Callable[[str, AllFacts, bool], Launch],
        print_line: Callable[[str], None],
        all_ready: Callable[[AllFacts], None],
        on_report: Callable[[Mapping[str, Any]], None] = lambda report: None,
    ) -> None:
        self._state = sv.supervise(*names)
        self._launch, self._print_line, self._all_ready = launch, print_line, all_ready
        self._on_report = on_report
        self._facts: dict[str, Facts] = {}
        self._running: dict[str, _Running] = {}
        self._successors: dict[str, _Running] = {}
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._code: int | None = None

    async def run(self) -> int:
        """Runs until all children have ended, and returns the exit status."""
        self._feed(ev.Begin(_now()))
        try:
            while self._code is None:
                self._feed(await self._next())
            return self._code
        finally:
            self._kill_the_rest()

    def stop(self) -> None:
        """Stops the children in order; the second call kills them. For signal handlers on the loop."""
        self._events.put_nowait(ev.StopRequested(_now()))

    def restart(self, name: str) -> None:
        """Starts this child's successor, and stops the child once that is loaded; the others keep running."""
        self._events.put_nowait(ev.RestartRequested(_now(), name))

    def pid(self, name: str) -> int | None:
        running = self._running.get(name)
        return running.process.pid if running else None

    async def _next(self) -> ev.Event:
        try:
            async with asyncio.timeout_at(sv.wake_at(self._state)):
                return await self._events.get()
        except TimeoutError:
            return ev.Tick(_now())

    def _feed(self, event: ev.Event) -> None:
        self._state, commands = sv.step(self._state, event)
        for command in commands:
            self._perform(command)

    def _perform(self, command: ev.Command) -> None:
        match command:
            case ev.Start(name):
                self._start(name)
            case ev.Terminate(name) if name in self._running:
                self._running[name].terminate()
            case ev.Kill(name) if name in self._running:
                self._running[name].kill()
            case ev.StartSuccessor(name):
                self._start_successor(name)
            case ev.Promote(name) if name in self._successors:
                self._running[name] = self._successors.pop(name)
            case ev.Promote(name):
                self._events.put_nowait(ev.Exited(_now(), name, "its successor ended with it"))
            case ev.KillSuccessor(name) if name in self._successors:
                self._successors[name].kill()
            case ev.Print(text):
                self._print_line(text)
            case ev.AllReady():
                self._all_ready(self._facts)
            case ev.Finish(code):
                self._code = code
            case _:
                pass  # the child has just ended: its exit event follows

    def _start(self, name: str) -> None:
        self._running[name] = self._spawn(name, successor=False)

    def _start_successor(self, name: str) -> None:
        try:
            self._successors[name] = self._spawn(name, successor=True)
        except OSError as error:
            self._events.put_nowait(ev.SuccessorExited(_now(), name, str(error)))

    def _spawn(self, name: str, *, successor: bool) -> _Running:
        launch = self._launch(name, self._facts, successor)

        def ready(facts: Facts) -> None:
            self._facts[name] = facts
            self._events.put_nowait(ev.BecameReady(_now(), name))

        def waits() -> None:
            self._events.put_nowait(ev.SuccessorWaits(_now(), name))

        def exited(status: int) -> None:
            why = _why(status, launch.log)
            if self._successors.get(name) is made:
                del self._successors[name]
                self._events.put_nowait(ev.SuccessorExited(_now(), name, why))
                return
            del self._running[name]
            self._events.put_nowait(ev.Exited(_now(), name, why))

        made = _Running(launch, ready, waits, exited, self._on_report)
        return made

    def _kill_the_rest(self) -> None:
        """Kills the children that are left, which only happens after an error in this module, and successors,
        which were killed when the stop began."""
        for running in (*self._running.values(), *self._successors.values()):
            running.kill()
            running.process.wait()
            running.close()


class _Running:
    """A process, with a pidfd for its exit and a pipe for its readiness."""

    def __init__(
        self,
        launch: Launch,
        ready: Callable[[Facts], None],
        waits: Callable[[], None],
        exited: Callable[[int], None],
        on_report: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._ready, self._waits, self._exited, self._on_report = ready, waits, exited, on_report
        self._was_ready = False
        self._line = b""
        self._pipe, write = os.pipe()
        with _open_log(launch.log) as log:
            try:
                self.process = subprocess.Popen(
                    (*launch.argv, "--ready-fd", str(write)),
                    env={**launch.env, PARENT: str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write, *launch.fds),
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
        """Kills its process group: also its children, unless they have a session of their own."""
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
        *lines, self._line = (self._line + data).split(b"\n")
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        for line in lines:
            self._handle_line(line + b"\n")

    def _handle_line(self, line: bytes) -> None:
        if self._was_ready:
            self._on_report(json.loads(line))
        elif parse_waits(line):
            self._waits()
        elif (facts := parse_ready(line)) is not None:
            self._was_ready = True
            self._ready(facts)

    def _reap(self) -> None:
        status = self.process.wait()  # returns at once: the pidfd is readable after the exit
        self.close()
        self._exited(status)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _open_log(log: Path) -> BinaryIO:
    """Opens the log file, or no file if that is impossible: a child runs without its log, too."""
    try:
        return open(log, "ab")
    except OSError:
        return open(os.devnull, "ab")


def _why(status: int, log: Path) -> str:
    how = f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"
    last = last_line(log)
    return f"{how}; the last line of {log.name}: {last}" if last else how


def last_line(log: Path) -> str:
    """Returns the last line that is not blank, or an empty text if the file cannot be read: somebody may have
    moved the file, and what only explains an exit must not stop the restart. Reads only the end of the
    file."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
