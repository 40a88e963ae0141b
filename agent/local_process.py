"""Workers as plain processes on this host: the real Spawner of python workers, and of any other program.

    spawn -> running --the process ended (pidfd)--> ended: its group killed, it reaped, its frames handed on
                                                      | look for what it left, kill, look again
                                                      v nobody is left, or GIVE_UP_S passed
                                                    reported: on_exit, once

- Everything happens on the loop's thread: no SIGCHLD handler, no thread. Spawning too, for the tie to the
  agent's life holds only as long as the thread that spawned.
- The end is the process's end, never the socket's: a helper that it forked may hold the socket open.
- The worker gets the environment that its endpoint declares, what it needs to find this package, and its
  marks; of the agent's own environment and descriptors nothing.
- A `Program` is started in the same way, but speaks no frames: what is sent to it goes nowhere.
- Killed is whatever the handler started, in sessions of its own too (agent.process_tree says how).

Not here: what to do about an exit, when to stop whom, the frames' meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stoker
from stoker.agent.birth import Birth, Child, Fork, Started
from stoker.agent.exit_words import exit_words
from stoker.agent.frame_socket import FrameSocket
from stoker.agent.log_pipe import LogPipe
from stoker.agent.log_tail import LogTail
from stoker.agent.process_tree import (
    AGENT_MARK,
    WORKER_MARK,
    Family,
    become_subreaper,
    kill_all,
    kill_leftovers,
    look,
    reap_strays,
)
from stoker.agent.seams import Listener, SpawnFailed, WorkerExit, WorkerWatcher
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.005
GIVE_UP_S = 5.0
"""How long what a dead worker left may take to die: a process inside a driver call cannot be hurried."""

STRAYS_S = 30.0

LogSink = Callable[[str, str], None]
"""Hears (worker, line)."""

LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class Program:
    """A command that is no python worker, where it starts, and its environment beside the marks."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of the worker's socket, where it has one, and of the pipe for what it prints."""

    ours: socket.socket | None
    theirs: socket.socket | None
    log_end: int
    log_start: int

    def close_ours(self) -> None:
        os.close(self.log_end)
        if self.ours is not None:
            self.ours.close()

    def close_theirs(self) -> None:
        os.close(self.log_start)
        if self.theirs is not None:
            self.theirs.close()


class LocalSpawner:
    """`folder` is the agent's data folder: its workers' homes lie below, and its name marks them, so that a
    later agent of the same folder ends what this one left. `user` is (uid, gid), where the agent may choose.
    `limits` are rlimits of its workers by their names ("NOFILE"), each soft and hard.
    """

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        module: str = "stoker.worker.runtime",
        log_sink: LogSink | None = None,
        user: tuple[int, int] | None = None,
        limits: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self._limits = dict(limits or {})
        self._folder = folder.absolute()
        self._python = python
        self._module = module
        self._spawned = 0
        self._log_sink = log_sink
        self._user = user
        self._living: dict[int, LocalProcess] = {}
        self._strays: asyncio.TimerHandle | None = None
        become_subreaper()
        if left := kill_leftovers(str(self._folder)):
            log.warning("killed %d processes that an earlier agent left", left)
        shutil.rmtree(self._folder / "homes", ignore_errors=True)

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> LocalProcess:
        return self.start(spec, device, watcher)

    def start(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        program: Program | None = None,
        fork: Fork | None = None,
    ) -> LocalProcess:
        """As the seam's `spawn`; with a program that is run instead of the python worker, or with a fork of
        something that is there already."""
        home = self._home(spec.worker)
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, home, ignore_errors=True)
            ends = _make_ends(frames=program is None)
            undo.callback(ends.close_ours)
            child: Child
            if fork is None:
                child = self._popen(spec, device, home, ends, program)
            else:
                child = self._forked(spec, device, home, ends, fork)
            try:
                if fork is None:
                    self._limit(child.pid)
                process = LocalProcess(spec.worker, child, ends, watcher, self._tail(spec.worker))
            except OSError as error:
                child.kill()
                child.wait()
                raise SpawnFailed(f"the worker cannot be watched or limited: {error.strerror}") from None
            undo.pop_all()
        self._living[process.pid] = process
        process.ended.add_done_callback(lambda _: self._gone(process.pid, home))
        self._watch_strays()
        return process

    def _popen(
        self, spec: WorkerSpec, device: Device | None, home: Path, ends: _Ends, program: Program | None
    ) -> subprocess.Popen[bytes]:
        fds = () if ends.theirs is None else (ends.theirs.fileno(),)
        try:
            return subprocess.Popen(
                self._command(*fds) if program is None else self._exec(program),
                cwd=_working_folder(spec.handler, home) if program is None else _present(program.folder),
                env=_environment(spec, device, home, self._folder)
                if program is None
                else _surrounded(program.environment, spec, device, home, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=ends.log_start,
                stderr=ends.log_start,
                pass_fds=fds,
                start_new_session=True,
                **self._as_user(),
            )
        except (OSError, ValueError) as error:
            raise SpawnFailed(f"the worker for {spec.handler} cannot be started: {error}") from None
        finally:
            ends.close_theirs()

    def _limit(self, pid: int) -> None:
        """Before a python worker is told what to load."""
        for name, limits in self._limits.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), limits)

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user[0], "group": self._user[1], "extra_groups": ()}

    def _forked(self, spec: WorkerSpec, device: Device | None, home: Path, ends: _Ends, fork: Fork) -> Child:
        assert ends.theirs is not None
        try:
            folder = _working_folder(spec.handler, home)
            environment = _environment(spec, device, home, self._folder)
            command = tuple(self._command(ends.theirs.fileno()))
            given = (ends.theirs.fileno(), ends.log_start, self._limits)
            return fork(Birth(self._module, command, folder, environment, *given))
        except OSError as error:
            raise SpawnFailed(f"the worker for {spec.handler} cannot be forked: {error}") from None
        finally:
            ends.close_theirs()

    def start_template(self, spec: WorkerSpec, device: Device | None, command: Started) -> Child:
        """A process beside the workers, of their user. What its imports wrote down of their HOME is its
        children's for as long as they live, so that folder stays until an agent starts here again."""
        home = self._home(spec.worker.rstrip("-"))
        launch = [self._python, "-P", "-m", "stoker.agent.launch", str(os.getpid())]
        return subprocess.Popen(
            [*launch, *command.arguments],
            cwd=home,
            env={**_environment(spec, device, home, self._folder), **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=command.output,
            stderr=command.output,
            pass_fds=(command.socket,),
            start_new_session=True,
            **self._as_user(),
        )

    def _command(self, fd: int) -> Sequence[str]:
        launch = [self._python, "-P", "-m", "stoker.agent.launch", str(os.getpid())]
        return [*launch, self._module, "--fd", str(fd)]

    def _exec(self, program: Program) -> Sequence[str]:
        """As a file: the program's environment knows nothing of this package."""
        return [self._python, "-I", "-S", str(LAUNCH), str(os.getpid()), "--", *program.command]

    def _tail(self, worker: str) -> LogTail:
        sink = self._log_sink
        return LogTail(None if sink is None else lambda line: sink(worker, line))

    def _home(self, worker: str) -> Path:
        """The process's HOME, for as long as it lives. A worker that is started again gets another."""
        self._spawned += 1
        home = self._folder / "homes" / f"{worker}.{self._spawned}"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._user is not None:
                os.chown(home, *self._user)
        except OSError as error:
            raise SpawnFailed(f"no home for worker {worker}: {error}") from None
        return home

    def _gone(self, pid: int, home: Path) -> None:
        self._living.pop(pid, None)
        shutil.rmtree(home, ignore_errors=True)

    def _watch_strays(self) -> None:
        if self._strays is None:
            self._strays = asyncio.get_running_loop().call_later(STRAYS_S, self._reap_strays)

    def _reap_strays(self) -> None:
        self._strays = None
        reap_strays(set(self._living))
        if self._living:
            self._watch_strays()

    async def close(self) -> None:
        """Kills and reaps whatever is left; every watcher has heard of its end when this returns."""
        waiting = [process.ended for process in self._living.values()]
        for process in list(self._living.values()):
            process.kill()
        await asyncio.gather(*waiting)
        if self._strays is not None:
            self._strays.cancel()
        reap_strays(set())


class LocalProcess:
    """See the module. `ended` is done after `on_exit` was called."""

    def __init__(
        self,
        worker: str,
        child: Child,
        ends: _Ends,
        watcher: WorkerWatcher,
        tail: LogTail,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._watcher = watcher
        self._tail = tail
        self._family = Family(worker, child.pid)
        self._killed: str | None = None  # why we killed it
        self._terminated = False
        self._gave_up_at = 0.0
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(child.pid)  # first: it is what may fail, for want of descriptors
        self._frames: FrameSocket | None = None
        if ends.ours is not None:
            self._frames = FrameSocket(ends.ours, self._loop, watcher.on_frame, self._broken)
        self._log = LogPipe(ends.log_end, self._loop, tail)
        self._loop.add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def _alive(self) -> bool:
        return self._child.returncode is None

    def send(self, frame: Frame) -> None:
        """Raises FrameError for a body over the limit of a frame."""
        if self._alive and self._frames is not None:
            self._frames.send(frame)

    def listen(self) -> Listener:
        self._log.drain()
        mark = self._tail.mark()

        def heard() -> tuple[str, ...]:
            self._log.drain()
            return self._tail.since(mark)

        return heard

    def pause(self) -> None:
        if self._alive and self._frames is not None:
            self._frames.pause()

    def resume(self) -> None:
        if self._alive and self._frames is not None:
            self._frames.resume()

    def terminate(self) -> None:
        if self._alive:
            self._terminated = True
            self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        self._kill("killed by the agent")

    def _kill(self, why: str) -> None:
        if self._alive and self._killed is None:
            self._killed = why
            # Looked at before anyone dies: a child of a dead process can no longer be told from another's.
            found = look(self._family)
            self._signal_group(signal.SIGKILL)
            kill_all(found)

    def _broken(self, why: str) -> None:
        self._kill(f"broke the worker protocol ({why}) and was killed")

    def _signal_group(self, number: int) -> None:
        """Only before the leader is reaped: until then nobody else can have its number. A forked one becomes
        the leader of its group a moment after its birth."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._signal_group(signal.SIGKILL)
        self._child.wait()
        if self._frames is not None:
            self._frames.finish()
        self._gave_up_at = self._loop.time() + GIVE_UP_S
        self._clear_up()

    def _clear_up(self) -> None:
        """Until nobody is left of what the worker started."""
        found = look(self._family)
        if found and self._loop.time() < self._gave_up_at:
            kill_all(found)
            self._loop.call_later(LOOK_AGAIN_S, self._clear_up)
            return
        if found:
            log.error("worker %s left processes that do not die: %s", self._family.worker, found)
        self._report()

    def _report(self) -> None:
        self._log.finish()
        self._tail.close()
        status = self._child.wait()
        reason = exit_words(status, self._killed, terminated=self._terminated)
        try:
            self._watcher.on_exit(WorkerExit(status, reason, self._tail.lines))
        finally:
            self.ended.set_result(None)


def _make_ends(*, frames: bool) -> _Ends:
    try:
        ours, theirs = socket.socketpair() if frames else (None, None)
    except OSError as error:
        raise SpawnFailed(f"no socket for a worker: {error.strerror}") from None
    try:
        log_end, log_start = os.pipe()
    except OSError as error:
        for end in (ours, theirs):
            if end is not None:
                end.close()
        raise SpawnFailed(f"no pipe for a worker: {error.strerror}") from None
    return _Ends(ours, theirs, log_end, log_start)


def _working_folder(handler: str, home: Path) -> Path:
    """The handler's folder, so that it finds its files; a module's handler starts in the worker's home."""
    path, _, _ = handler.rpartition(":")
    if "/" not in path and not path.endswith(".py"):
        return home
    return _present(Path(path).parent)


def _present(folder: Path) -> Path:
    if not folder.is_dir():
        raise OSError(f"there is no folder {folder}")
    return folder


def _environment(spec: WorkerSpec, device: Device | None, home: Path, folder: Path) -> dict[str, str]:
    """What a python worker needs, too, to find this package."""
    package = str(Path(stoker.__file__).parents[1])
    declared = dict(spec.env)
    search = [package, *filter(None, [declared.pop("PYTHONPATH", "")])]
    declared["PYTHONPATH"] = os.pathsep.join(search)
    return _surrounded(declared, spec, device, home, folder)


def _surrounded(
    declared: Mapping[str, str], spec: WorkerSpec, device: Device | None, home: Path, folder: Path
) -> dict[str, str]:
    """What is declared wins over the defaults, never over the device and the marks. Those stand first."""
    marks = {WORKER_MARK: spec.worker, AGENT_MARK: str(folder)}
    return {
        **marks,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        **declared,
        "CUDA_VISIBLE_DEVICES": device.uuid if device is not None and device.kind != "cpu" else "",
        **marks,
    }
