"""One life of a template process and its spares, as the agent sees them; what is to be done is the owner's.

    starting ──ready──> forks a spare ──take_spare──> the worker's; the next spare comes by itself
    its death (pidfd), or `end` ──> its spares killed ──> what it forked looked for, killed, reaped ──> ended

A template that is killed takes its spare along, which is not a worker yet. Its workers live on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any, Protocol

from stoker.agent import zygote
from stoker.agent.birth import Birth, TemplateCommand
from stoker.agent.exit_words import exit_words
from stoker.agent.holdings import Kept
from stoker.agent.isolation import SHARED_UMASK
from stoker.agent.local_process import LocalSpawner
from stoker.agent.log_pipe import READ_MAX, log_pipe
from stoker.agent.log_tail import LogTail
from stoker.agent.process_tree import Family, kill_all, look
from stoker.agent.started_process import LOOK_AGAIN_S
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker import template_words as words

log = logging.getLogger(__name__)

MODULE = "stoker.worker.template"
TOLD_LINES = 5


class Owner(Protocol):
    def on_message(self, life: TemplateProcess, message: dict[str, Any]) -> None:
        """What it said; a spare that it brings is there by then."""

    def on_death(self, life: TemplateProcess, why: str) -> None: ...

    def on_end(self, life: TemplateProcess) -> None:
        """Nothing of it is left."""


class Spare:
    """A child of the agent's, forked ahead. Watched until a worker is made of it."""

    def __init__(self, pid: int, orders: socket.socket, lost: Callable[[Spare], None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._orders = orders
        self._lost = lost
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # whoever it names must be our child
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def become(self, birth: Birth) -> Spare:
        """Raises OSError, and is a spare still."""
        plan = birth.plan
        request = {
            "kind": "become",
            "module": birth.module,
            "command": birth.command,
            "folder": str(birth.folder),
            "environment": dict(birth.environment),
            "limits": dict(plan.rlimits),
            "mount": None if plan.mount is None else [plan.mount.source, plan.mount.target],
            "umask": SHARED_UMASK if plan.volume_path and plan.groups else None,
        }
        if birth.cgroup is not None:
            birth.cgroup.write_text(str(self.pid))  # first: whatever it starts is in it, too
        try:
            words.send(self._orders, request, [birth.socket, birth.output])
        except words.TooLarge as error:
            raise OSError(0, str(error)) from None
        self._unwatch()
        return self

    def wait(self) -> int:
        """The agent may have reaped it already, as a leftover of its template's session or at its own end:
        then it was killed."""
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:
                status = signal.SIGKILL
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """Nothing, where it was killed and reaped as a leftover."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    @property
    def waits(self) -> bool:
        return self._pidfd >= 0

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._orders.close()

    def _exited(self) -> None:
        self._unwatch()
        self.wait()
        self._lost(self)


class TemplateProcess:
    """One life of a template. `ended` is done when nothing of it is left, its spares included."""

    def __init__(
        self,
        local: LocalSpawner,
        spec: WorkerSpec,
        device: Device | None,
        preload: tuple[str, ...],
        owner: Owner,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._tail = LogTail()
        self.spare: Spare | None = None
        self.kept: Kept
        self._spares: set[Spare] = set()
        self._names: tuple[str, ...] = ()
        self._origins: dict[str, str] = {}
        self._dead: str | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        with contextlib.ExitStack() as undo:
            self._control, theirs = words.pair()
            undo.callback(self._control.close)
            self._log_end, log_start = log_pipe()
            undo.callback(os.close, self._log_end)
            try:
                command = _command(theirs.fileno(), log_start, preload)
                self._child, self.kept, self._give_back = local.start_template(spec, device, command)
            finally:
                theirs.close()
                os.close(log_start)
            self._pidfd = os.pidfd_open(self._child.pid)
            undo.pop_all()
        self._family = Family(spec.worker.rstrip("-"), self._child.pid)
        os.set_blocking(self._log_end, False)
        self._control.setblocking(False)
        self._loop.add_reader(self._log_end, self._read_log)
        self._loop.add_reader(self._control, self._heard)
        self._loop.add_reader(self._pidfd, self._exited)

    # -- what the owner asks

    def unfit(self, handler: str) -> str | None:
        """Why this handler cannot be forked from here."""
        path, _, _ = handler.rpartition(":")
        if not path.endswith(".py"):
            return None
        folder = str(Path(path).parent)
        return zygote.unfit(self._names, self._origins, folder, modules_in(folder))

    def take_spare(self) -> Spare:
        spare, self.spare = self.spare, None
        assert spare is not None
        self._spares.discard(spare)
        return spare

    def put_back(self, spare: Spare) -> None:
        """If nothing has become of it."""
        if spare.waits:
            self._spares.add(spare)
            self.spare = spare

    def end(self) -> None:
        """It and its spares die. `ended` tells when they have."""
        self.spare = None
        for spare in self._spares:
            spare.kill()
        if self._dead is None:
            self._child.kill()

    # -- what it says

    def _heard(self) -> None:
        try:
            heard = words.receive(self._control)
        except (BlockingIOError, InterruptedError):
            return
        if heard is None:  # all its ends are closed: no further spare can come
            self._close_control()
            self._clear_up()
            return
        message, fds = heard
        if message["kind"] == "ready":
            self._names, self._origins = tuple(message["names"]), message["origins"]
        if message["kind"] == "spare":
            self._welcome(message["pid"], socket.socket(fileno=fds.pop()))
        for fd in fds:
            os.close(fd)
        self._owner.on_message(self, message)

    def _welcome(self, pid: int, orders: socket.socket) -> None:
        try:
            spare = Spare(pid, orders, self._lost)
        except OSError as error:  # without an end of its socket it leaves by itself
            log.warning("a spare worker cannot be watched: %s", error.strerror)
            orders.close()
            return
        self._spares.add(spare)
        self.spare = spare
        if self._dead is not None:
            self.end()

    def _lost(self, spare: Spare) -> None:
        """It died as a spare. The template forks the next one by itself."""
        self._spares.discard(spare)
        if self.spare is spare:
            self.spare = None
        self._clear_up()

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._child.wait()
        self._read_log()
        self._tail.close()
        last = "; ".join(self._tail.lines[-TOLD_LINES:])
        self._dead = exit_words(status, None, terminated=False) + (
            f", having printed: {last}" if last else ""
        )
        self.end()
        self._clear_up()
        self._owner.on_death(self, self._dead)

    def _clear_up(self) -> None:
        """Until nobody is left of what it forked. Its workers lead sessions of their own."""
        if self._dead is None or self._control.fileno() >= 0 or self._spares or self.ended.done():
            return
        if found := look(self._family):
            kill_all(found)
            self._loop.call_later(LOOK_AGAIN_S, self._clear_up)
            return
        self._close_log()
        self._give_back()
        self.ended.set_result(None)
        self._owner.on_end(self)

    def _close_control(self) -> None:
        self._loop.remove_reader(self._control)
        self._control.close()

    def _read_log(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._log_end, READ_MAX) if self._log_end >= 0 else b""
            if not data:
                self._close_log()
            self._tail.feed(data)

    def _close_log(self) -> None:
        if self._log_end >= 0:
            self._loop.remove_reader(self._log_end)
            os.close(self._log_end)
            self._log_end = -1


def modules_in(folder: str) -> list[str]:
    """What can be imported by name from this folder."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and os.path.exists(f"{entry.path}/__init__.py"):
                found.append(entry.name)
            elif any(entry.name.endswith(suffix) for suffix in all_suffixes()):
                found.append(entry.name.partition(".")[0])
    return found


def _command(fd: int, output: int, preload: tuple[str, ...]) -> TemplateCommand:
    environment = {**dict.fromkeys(words.THREAD_VARIABLES, "1"), words.ASK_NVML: "1"}
    return TemplateCommand((MODULE, "--fd", str(fd), *preload), environment, fd, output)
