"""Workers as plain processes on this host: the real Spawner of python workers, and of any other program.

    spawn -> user, home, cgroup taken -> plan (sandbox.isolation) -> launch.py performs it, becomes
    the worker
             given back when nothing of the worker is left (agent.workers.processes.running_process)

- Everything happens on the loop's thread: no SIGCHLD handler, no thread. Spawning too, for the tie to the
  agent's life holds only as long as the thread that spawned.
- The worker gets the environment that its endpoint declares, what it needs to find this package, and its
  marks; of the agent's own environment and descriptors nothing.
- A `Program` is started in the same way, but exchanges no frames: what is sent to it is dropped.
- A forked worker gets the same plan, but for its user and a wrapper (`agent.host.sandbox.isolation`).

Not here: what to do about an exit, when to stop whom, the frames' meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.host.process_tree.cgroups import Cgroups
from stoker.agent.host.process_tree.tree import SeenProcess, become_subreaper, kill_orphans, reap_strays
from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.sandbox.launching import launch, order
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.interfaces import WorkerWatcher
from stoker.agent.workers.processes.environment import (
    ENVIRONMENTS,
    marks,
    python_environment,
    runs_functions,
    surrounded,
)
from stoker.agent.workers.processes.running_process import LocalProcess
from stoker.agent.workers.processes.spawn_request import (
    Channels,
    ChildProcess,
    Fork,
    Program,
    SpawnRequest,
    ZygoteCommand,
    open_channels,
)
from stoker.agent.workers.processes.worker_resources import Allocation, WorkerResources
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)

STRAYS_S = 30.0
INIT = 1
"""The process id of an agent that is a container's first process: it inherits every process there."""


class LocalSpawner:
    """The spawner of workers as plain processes. `folder` is the agent's data folder: its workers' homes lie
    below, and its name marks them, so that a later agent of the same folder ends what this one left. `host`
    is what may be used to shut them in, `users` are those they run as. `writable` are folders outside their
    homes that they may write to in a sandbox."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        module: str = "stoker.worker.runtime",
        users: WorkerUsers | None = None,
        host: Host | None = None,
        cgroups: Cgroups | None = None,
        writable: Sequence[Path] = (),
    ) -> None:
        self._folder = folder.absolute()
        self._python, self._module, self._cgroups = python, module, cgroups
        self.users = users or WorkerUsers()
        self._shared: dict[str, str] = {}
        apart = self.users.other or (host or Host()).wraps
        if not apart:  # else one could put code there that others run
            environments = self._folder / "environments"
            environments.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shared[ENVIRONMENTS] = str(environments)
            writable = (*writable, environments)
        self._resources = WorkerResources(self._folder, self.users, host or Host(), cgroups, writable)
        self._living: dict[int, LocalProcess] = {}
        self._strays: asyncio.TimerHandle | None = None
        self._unclear: list[SeenProcess] = []
        become_subreaper()
        if left := kill_orphans(str(self._folder)):
            log.warning("killed %d processes that an earlier agent left", left)
        self._resources.clear()

    def spawn(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        program: Program | None = None,
        fork: Fork | None = None,
        zygote: Allocation | None = None,
    ) -> LocalProcess:
        """Implements `Spawner.spawn`; with a program that is run instead of the python worker, or with a fork
        of this zygote."""
        with contextlib.ExitStack() as undo:
            allocation = self._resources.take(spec, program, undo, zygote)
            channels = open_channels(frames=program is None)
            undo.callback(channels.close_ours)
            child: ChildProcess
            if fork is None:
                child = self._popen(spec, device, allocation, channels, program)
            else:
                child = self._forked(spec, device, allocation, channels, fork)
            try:
                bounds = self._resources.bounds(spec, allocation, forked=fork is not None)
                living = self._living.keys()
                process = LocalProcess(spec.worker, child, channels, watcher, LogTail(), bounds, living)
            except OSError as error:
                child.kill()
                child.wait()
                raise SpawnFailed(f"the worker cannot be watched: {error.strerror}") from None
            undo.pop_all()
        self._living[process.pid] = process
        process.ended.add_done_callback(lambda _: self._gone(process.pid, allocation))
        self._watch_strays()
        return process

    # -- how it starts

    def _popen(
        self,
        spec: WorkerSpec,
        device: Device | None,
        allocation: Allocation,
        channels: Channels,
        program: Program | None,
    ) -> subprocess.Popen[bytes]:
        fds = () if channels.theirs is None else (channels.theirs.fileno(),)
        volume = allocation.plan.volume_path
        try:
            if program is None:
                environment = python_environment(spec, device, allocation.home, self._folder, volume)
                command = self._command(*fds)
            else:
                command = program.command
                rest = (spec, device, allocation.home, self._folder, volume)
                environment = surrounded(program.environment, *rest)
            if runs_functions(spec):
                environment = {**self._shared, **environment}
            return self._launch(allocation, command, environment, (channels.log_write, *fds))
        except (OSError, ValueError) as error:
            raise SpawnFailed(f"the worker for {spec.handler} cannot be started: {error}") from None
        finally:
            channels.close_theirs()

    def _launch(
        self,
        allocation: Allocation,
        command: Sequence[str],
        environment: Mapping[str, str],
        fds: Sequence[int],
    ) -> subprocess.Popen[bytes]:
        """Launches a process. The first of `fds` is its output."""
        procs = None if allocation.cgroup is None else allocation.cgroup.procs
        request = order(allocation.plan, command, allocation.folder, environment, procs)
        return launch(request, marks(allocation.worker, self._folder), fds[0], fds[1:])

    def _forked(
        self, spec: WorkerSpec, device: Device | None, allocation: Allocation, channels: Channels, fork: Fork
    ) -> ChildProcess:
        assert channels.theirs is not None
        try:
            volume = allocation.plan.volume_path
            environment = python_environment(spec, device, allocation.home, self._folder, volume)
            command = tuple(self._command(channels.theirs.fileno()))
            cgroup = None if allocation.cgroup is None else allocation.cgroup.procs
            rest = (channels.theirs.fileno(), channels.log_write, allocation.plan, cgroup)
            return fork(SpawnRequest(self._module, command, allocation.folder, environment, *rest))
        except OSError as error:
            raise SpawnFailed(f"the worker for {spec.handler} cannot be forked: {error}") from None
        finally:
            channels.close_theirs()

    def start_zygote(
        self, spec: WorkerSpec, device: Device | None, command: ZygoteCommand
    ) -> tuple[ChildProcess, Allocation, Callable[[], None]]:
        """Starts a zygote. Returns its process, what it holds, and the function that gives that back when
        nothing is left."""
        allocation, give_back = self._resources.for_zygote(spec)
        try:
            environment = {
                **python_environment(spec, device, allocation.home, self._folder),
                **command.environment,
            }
            arguments = [self._python, "-P", "-m", *command.arguments]
            fds = (command.output, command.socket)
            child = self._launch(allocation, arguments, environment, fds)
        except BaseException:
            give_back()
            raise
        return child, allocation, give_back

    def unforkable(self, spec: WorkerSpec) -> str:
        return self._resources.unforkable(spec)

    def _command(self, fd: int) -> Sequence[str]:
        return [self._python, "-P", "-m", self._module, "--fd", str(fd)]

    # -- how it ends

    def _gone(self, pid: int, allocation: Allocation) -> None:
        self._living.pop(pid, None)
        self._resources.give_back(allocation)

    def _watch_strays(self) -> None:
        if self._strays is None:
            self._strays = asyncio.get_running_loop().call_later(STRAYS_S, self._reap_strays)

    def _reap_strays(self) -> None:
        self._strays = None
        self._unclear = reap_strays(set(self._living), self._unclear)
        if self._living or self._unclear or os.getpid() == INIT:
            self._watch_strays()

    async def close(self) -> None:
        """Kills and reaps whatever is left; every watcher has received its end when this returns."""
        waiting = [process.ended for process in self._living.values()]
        for process in list(self._living.values()):
            process.kill()
        await asyncio.gather(*waiting)
        await asyncio.sleep(0)  # what is done when they have ended
        if self._strays is not None:
            self._strays.cancel()
        reap_strays(set(), self._unclear)
        if self._cgroups is not None:
            self._cgroups.close()
