"""The process of a zygote and its spares. The owner decides what is done with them.

    starting ──ready──> forks a spare ──take_spare──> becomes a worker; the zygote forks the next spare
    its death (pidfd), or `end` ──> its spares are killed ──> its other processes are found and killed
                                    ──> ended

When a zygote ends, its spare is killed, since the spare is not a worker yet. Its workers live on.
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

from stoker.agent.host.logs.tail import READ_MAX, LogTail, log_pipe
from stoker.agent.host.process_tree.tree import ProcessFamily, kill_all, look
from stoker.agent.host.sandbox.isolation import SHARED_UMASK
from stoker.agent.workers.processes.exit_reasons import describe_exit
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.running_process import LOOK_AGAIN_S
from stoker.agent.workers.processes.spawn_request import SpawnRequest, ZygoteCommand
from stoker.agent.workers.processes.worker_resources import Allocation
from stoker.agent.workers.zygotes import zygote_machine
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker import zygote_messages

log = logging.getLogger(__name__)

MODULE = "stoker.worker.zygote.zygote"
LOG_LINES = 5


class Owner(Protocol):
    def on_message(self, life: ZygoteProcess, message: dict[str, Any]) -> None:
        """Receives each message, after a spare that came with it was set."""

    def on_death(self, life: ZygoteProcess, why: str) -> None: ...

    def on_end(self, life: ZygoteProcess) -> None:
        """Handles the end: none of the zygote's processes is left."""


class Spare:
    """A process that was forked ahead, as a child of the agent. It is watched until it becomes a worker."""

    def __init__(self, pid: int, orders: socket.socket, lost: Callable[[Spare], None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._orders = orders
        self._lost = lost
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises if it is not our child
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def become(self, spawn: SpawnRequest) -> Spare:
        """Makes it a worker. If this raises OSError, it is still a spare."""
        plan = spawn.plan
        message = {
            "kind": "become",
            "module": spawn.module,
            "command": spawn.command,
            "folder": str(spawn.folder),
            "environment": dict(spawn.environment),
            "limits": dict(plan.rlimits),
            "mount": None if plan.mount is None else [plan.mount.source, plan.mount.target],
            "umask": SHARED_UMASK if plan.volume_path and plan.groups else None,
        }
        if spawn.cgroup is not None:
            spawn.cgroup.write_text(str(self.pid))  # first, so that its children are in the cgroup, too
        try:
            zygote_messages.send(self._orders, message, [spawn.socket, spawn.output])
        except zygote_messages.TooLarge as error:
            raise OSError(0, str(error)) from None
        self._unwatch()
        return self

    def wait(self) -> int:
        """Returns its exit code. The agent may have killed and reaped it already, with its zygote's other
        processes or at its own end."""
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:
                status = signal.SIGKILL
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """Does nothing if it was killed and reaped already."""
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


class ZygoteProcess:
    """The process of a zygote. `ended` is done when the zygote, its spares and its other processes have
    ended."""

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
        self.kept: Allocation
        self._spares: set[Spare] = set()
        self._names: tuple[str, ...] = ()
        self._origins: dict[str, str] = {}
        self._dead: str | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        with contextlib.ExitStack() as undo:
            self._control, theirs = zygote_messages.pair()
            undo.callback(self._control.close)
            self._log_end, log_write = log_pipe()
            undo.callback(os.close, self._log_end)
            try:
                command = _command(theirs.fileno(), log_write, preload)
                self._child, self.kept, self._give_back = local.start_zygote(spec, device, command)
            finally:
                theirs.close()
                os.close(log_write)
            self._pidfd = os.pidfd_open(self._child.pid)
            undo.pop_all()
        self._family = ProcessFamily(spec.worker.rstrip("-"), self._child.pid)
        os.set_blocking(self._log_end, False)
        self._control.setblocking(False)
        self._loop.add_reader(self._log_end, self._read_log)
        self._loop.add_reader(self._control, self._on_message)
        self._loop.add_reader(self._pidfd, self._exited)

    # -- for the owner

    def unfit(self, handler: str) -> str | None:
        """Returns why this handler cannot be forked from the zygote, or None if it can."""
        path, _, _ = handler.rpartition(":")
        if not path.endswith(".py"):
            return None
        folder = str(Path(path).parent)
        return zygote_machine.unfit(self._names, self._origins, folder, modules_in(folder))

    def take_spare(self) -> Spare:
        spare, self.spare = self.spare, None
        assert spare is not None
        self._spares.discard(spare)
        return spare

    def put_back(self, spare: Spare) -> None:
        """Puts a spare back, unless it has become a worker or has ended."""
        if spare.waits:
            self._spares.add(spare)
            self.spare = spare

    def end(self) -> None:
        """Kills it and its spares. `ended` is done when they have ended."""
        self.spare = None
        for spare in self._spares:
            spare.kill()
        if self._dead is None:
            self._child.kill()

    # -- its messages and its end

    def _on_message(self) -> None:
        try:
            received = zygote_messages.receive(self._control)
        except (BlockingIOError, InterruptedError):
            return
        if received is None:  # the other end is closed: no spare can come any more
            self._loop.remove_reader(self._control)
            self._control.close()
            self._clear_up()
            return
        message, fds = received
        if message["kind"] == "ready":
            self._names, self._origins = tuple(message["names"]), message["origins"]
        if message["kind"] == "spare":
            self._add_spare(message["pid"], socket.socket(fileno=fds.pop()))
        for fd in fds:
            os.close(fd)
        self._owner.on_message(self, message)

    def _add_spare(self, pid: int, orders: socket.socket) -> None:
        try:
            spare = Spare(pid, orders, self._lost)
        except OSError as error:  # it exits by itself once its socket is closed
            log.warning("a spare worker cannot be watched: %s", error.strerror)
            orders.close()
            return
        self._spares.add(spare)
        self.spare = spare
        if self._dead is not None:
            self.end()

    def _lost(self, spare: Spare) -> None:
        """Removes a spare that has died. The zygote forks the next one by itself."""
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
        last = "; ".join(self._tail.lines[-LOG_LINES:])
        self._dead = describe_exit(status, None, terminated=False) + (
            f", having printed: {last}" if last else ""
        )
        self.end()
        self._clear_up()
        self._owner.on_death(self, self._dead)

    def _clear_up(self) -> None:
        """Kills what it forked, again and again until nothing is left. Workers are in sessions of their
        own."""
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
    """Returns the names of the modules and packages in this folder."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and os.path.exists(f"{entry.path}/__init__.py"):
                found.append(entry.name)
            elif any(entry.name.endswith(suffix) for suffix in all_suffixes()):
                found.append(entry.name.partition(".")[0])
    return found


def _command(fd: int, output: int, preload: tuple[str, ...]) -> ZygoteCommand:
    environment = {**dict.fromkeys(zygote_messages.THREAD_VARIABLES, "1"), zygote_messages.ASK_NVML: "1"}
    return ZygoteCommand((MODULE, "--fd", str(fd), *preload), environment, fd, output)
