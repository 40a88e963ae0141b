"""The process of a worker on this host, from its start until no process of the worker is left.

    running --the process ended (pidfd)--> ended: its group killed, it reaped, its frames handed on
                                             | look for what it left, kill, look again
                                             v none is left, or GIVE_UP_S passed
                                           reported: on_exit, once

- It has ended when the process has ended, whatever the state of its socket: a helper that it forked may hold
  the socket open.
- Everything that the handler started is killed, in sessions of its own too: by its cgroup in one write where
  it has one, and by what `agent.host.process_tree.tree` finds.
- With a wrapper around it (bubblewrap) the process that ends is the wrapper. It passes on how the worker
  ended, as shells do: 128 and the signal. A SIGTERM goes past it, to the worker.
- A memory limit that no cgroup keeps is kept by looking (`agent.host.process_tree.memory_watch`).

Who made it, and how: `agent.workers.processes.local_spawner`, `agent.workers.zygotes.zygote_process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Collection

from msgspec import Struct

from stoker.agent.host.logs.tail import LogPipe, LogTail
from stoker.agent.host.process_tree.cgroups import Cgroup
from stoker.agent.host.process_tree.memory_watch import MemoryWatch
from stoker.agent.host.process_tree.tree import ProcessFamily, add_members, kill_all, look, process_table
from stoker.agent.interfaces import WorkerExit, WorkerWatcher
from stoker.agent.workers.processes.exit_reasons import describe_exit
from stoker.agent.workers.processes.frame_socket import FrameSocket
from stoker.agent.workers.processes.spawn_request import Channels, ChildProcess
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.005
GIVE_UP_S = 5.0
"""How long what a dead worker left may take to die: a process inside a driver call cannot be hurried."""


class Confinement(Struct, frozen=True):
    """The sandbox of a worker, as far as its end needs it. `memory_bytes` is its limit; `watched`: the agent
    itself keeps the worker to that. `uid` is its user, where no other process has that one."""

    cgroup: Cgroup | None = None
    uid: int | None = None
    wrapped: bool = False
    memory_bytes: int | None = None
    watched: bool = False


class LocalProcess:
    """See the module. `ended` is done after `on_exit` was called. `others` are the process ids of the workers
    that live, this one's as well."""

    def __init__(
        self,
        worker: str,
        child: ChildProcess,
        channels: Channels,
        watcher: WorkerWatcher,
        tail: LogTail,
        bounds: Confinement,
        others: Collection[int] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._child, self._watcher, self.tail = child, watcher, tail
        self.image_id = ""
        self._bounds = bounds
        self._family = ProcessFamily(worker, child.pid, bounds.uid, others)
        self._killed: str | None = None  # why we killed it
        self._terminated = False
        self._gave_up_at = 0.0
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(child.pid)  # first: it is what may fail, for want of descriptors
        self.alive = True
        self._frames: FrameSocket | None = None
        self.send: Callable[[Frame], None] = lambda frame: None
        """As that of `FrameSocket`; a worker without one is sent nothing."""
        if channels.ours is not None:
            self._frames = FrameSocket(channels.ours, self._loop, watcher.on_frame, watcher.on_broken)
            self.send = self._frames.send
        self._log = LogPipe(channels.log_read, self._loop, tail)
        self._memory: MemoryWatch | None = None
        if bounds.watched and bounds.memory_bytes is not None:
            self._memory = MemoryWatch(bounds.memory_bytes, self._members, self._out_of_memory, bounds.uid)
        self._loop.add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        return self._child.pid

    def print_to(self, tail: LogTail) -> None:
        """Uses this tail from now on. To be called before it has printed."""
        self.tail = tail
        self._log.feed_to(tail)

    def pause(self) -> None:
        if self._frames is not None:
            self._frames.pause()

    def resume(self) -> None:
        if self._frames is not None:
            self._frames.resume()

    def terminate(self) -> None:
        if self.alive:
            self._terminated = True
            if not (self._bounds.wrapped and self._terminate_wrapped()):
                self._signal_group(signal.SIGTERM)

    def _terminate_wrapped(self) -> bool:
        """Returns whether there is a worker in the wrapper, after a SIGTERM to it. The wrapper's own end
        would kill it; its first process in a pid namespace ignores the signal, as each such process does."""
        table = process_table().values()
        inside = [seen for seen in table if seen.session == self.pid != seen.pid and not seen.zombie]
        kill_all(inside, signal.SIGTERM)
        return bool(inside)

    def kill(self) -> None:
        self._kill("killed by the agent")

    def _kill(self, why: str) -> None:
        if self.alive and self._killed is None:
            self._killed = why
            self._kill_cgroup()
            # Listed before any is killed: the parent of a process is lost when that parent dies.
            found = look(self._family)
            self._signal_group(signal.SIGKILL)
            kill_all(found)

    def _members(self) -> list[int]:
        if self._bounds.cgroup is not None:
            return self._bounds.cgroup.pids()
        return [seen.pid for seen in look(self._family)]

    def _out_of_memory(self) -> None:
        self._kill(self._memory_limit_text())

    def _memory_limit_text(self) -> str:
        assert self._bounds.memory_bytes is not None
        return f"killed: out of memory (limit {self._bounds.memory_bytes >> 20} MiB)"

    def _kill_cgroup(self) -> None:
        """Kills the cgroup, noting who was in it: the orphans among them are the agent's to reap."""
        if (cgroup := self._bounds.cgroup) is not None and cgroup.populated:
            add_members(self._family, cgroup.pids())
            cgroup.kill()

    def _signal_group(self, number: int) -> None:
        """Signals the process group, only before the leader is reaped: until then no other process can have
        its pid. A forked leader becomes the leader of its group a moment after the fork."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._memory is not None:
            self._memory.stop()
        self._signal_group(signal.SIGKILL)
        self._kill_cgroup()
        self._child.wait()
        self.alive = False
        try:
            if self._frames is not None:
                self._frames.finish()
        finally:  # whatever its frames led to, its end is awaited
            self._gave_up_at = self._loop.time() + GIVE_UP_S  # only now: its frames may have taken seconds
            self._clear_up()

    def _clear_up(self) -> None:
        """Looks and kills again until no process is left that the worker started."""
        self._kill_cgroup()
        found = look(self._family)
        kill_all(found)
        if (found or self._family.undecided) and self._loop.time() < self._gave_up_at:
            self._loop.call_later(LOOK_AGAIN_S, self._clear_up)
            return
        if found:
            log.error("worker %s left processes that do not die: %s", self._family.worker, found)
        self._report()

    def _report(self) -> None:
        self._log.finish()
        self.tail.close()
        status = self._status()
        reason = describe_exit(status, self._killed or self._kernel_killed(), terminated=self._terminated)
        try:
            self._watcher.on_exit(WorkerExit(status, reason, self.tail.lines))
        finally:
            self.ended.set_result(None)

    def _status(self) -> int:
        """Returns the exit status as if nothing were wrapped around the worker."""
        status = self._child.wait()
        return 128 - status if self._bounds.wrapped and status > 128 else status

    def _kernel_killed(self) -> str | None:
        """Returns why the kernel killed the process, where that is known."""
        cgroup = self._bounds.cgroup
        if cgroup is None or self._bounds.memory_bytes is None or not cgroup.oom_kills:
            return None
        return self._memory_limit_text()
