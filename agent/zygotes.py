"""Python workers forked from templates: the shell of `agent.zygote`, and a Spawner in front of the local one.

    spawn ── no preload ──────────────────────────────> a fresh interpreter (agent.local_process)
      └── the set's template: ready ──> its spare becomes the worker, at once
                              importing, or between two spares ──> WaitingWorker ──> …
                              refused, dead, unfit ──> a fresh interpreter, with the reason in the log

- A worker from a template is a LocalProcess: same end, same log, same kill. It is the agent's own child.
- A template, its spares and whatever is between them end with the agent. One that is killed takes its spare
  with it, which is no worker yet, and no worker.
- The last lines that a template printed are told with its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from stoker.agent import zygote
from stoker.agent.alarm import Alarm
from stoker.agent.birth import Birth, Started
from stoker.agent.exit_words import exit_words
from stoker.agent.local_process import LOOK_AGAIN_S, PIPE_READ, LocalProcess, LocalSpawner
from stoker.agent.log_tail import LogTail
from stoker.agent.process_tree import Family, kill_all, look
from stoker.agent.seams import Listener, SpawnFailed, WorkerExit, WorkerWatcher
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker import template_words as words
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

MODULE = "stoker.worker.template"
TOLD_LINES = 5

Make = Callable[[WorkerSpec, Device | None, WorkerWatcher], LocalProcess]
"""Raises SpawnFailed."""


class ZygoteSpawner:
    """Forks what can be forked and has `local` start the rest."""

    def __init__(self, local: LocalSpawner) -> None:
        self._local = local
        self._sets: dict[zygote.ImportSet, TemplateOf] = {}
        self._said: set[str] = set()

    def spawn(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher
    ) -> LocalProcess | WaitingWorker:
        if not spec.preload:
            return self._local.spawn(spec, device, watcher)
        accelerated = device is not None and device.kind != "cpu"
        wanted = zygote.import_set(spec.preload, spec.env, accelerated=accelerated, name=spec.worker)
        if isinstance(wanted, zygote.Fresh):
            self._say(spec, wanted.why)
            return self._local.spawn(spec, device, watcher)
        if wanted not in self._sets:
            self._sets[wanted] = TemplateOf(wanted, self._local, self._say)
        return self._sets[wanted].spawn(spec, device, watcher)

    def _say(self, spec: WorkerSpec, why: str) -> None:
        """Once for each endpoint and reason: workers come and go."""
        told = f"workers of endpoint {spec.endpoint} start in fresh interpreters: {why}"
        if told not in self._said:
            self._said.add(told)
            log.warning("%s", told)

    async def close(self) -> None:
        for template in self._sets.values():
            template.discard()
        await self._local.close()
        await asyncio.gather(*(template.ended() for template in self._sets.values()))


class TemplateOf:
    """One set's template, from life to life, and the workers that wait for it."""

    def __init__(
        self, wanted: zygote.ImportSet, local: LocalSpawner, say: Callable[[WorkerSpec, str], None]
    ) -> None:
        self._set = wanted
        self._local = local
        self._say = say
        self._state = zygote.State()
        self._alarm = Alarm(lambda at: self._tell(zygote.Tick(at)))
        self._patience = Alarm(lambda at: self._tell(zygote.Silent(at)))
        self._life: TemplateProcess | None = None
        self._lives: set[TemplateProcess] = set()  # until nothing of them is left
        self._waiting: deque[WaitingWorker] = deque()
        self._example: tuple[WorkerSpec, Device | None] | None = None
        self._count = 0

    # -- workers

    def spawn(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher
    ) -> LocalProcess | WaitingWorker:
        self._example = spec, device
        self._tell(zygote.Needed(_now()))
        make: Make = self._make
        match zygote.door(self._state):
            case zygote.Ready() if self._spare is not None and not self._waiting:
                pass
            case zygote.Importing() | zygote.Ready():
                waiting = WaitingWorker(spec, device, watcher, self._withdrawn)
                self._waiting.append(waiting)
                return waiting
            case zygote.Fresh(why):
                make = self._fresh(why)
        try:
            return make(spec, device, watcher)
        except SpawnFailed:
            self._tell(zygote.Left(_now()))
            raise

    @property
    def _spare(self) -> Spare | None:
        return None if self._life is None else self._life.spare

    def _make(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> LocalProcess:
        """A worker of the spare that is there. Raises SpawnFailed."""
        assert self._life is not None
        if (why := self._life.unfit(spec.handler)) is not None:
            return self._fresh(why)(spec, device, watcher)
        spare = self._life.take_spare()
        try:
            process = self._local.start(spec, device, watcher, fork=spare.become)
        except SpawnFailed as error:
            spare.kill()
            return self._fresh(str(error))(spec, device, watcher)
        return self._counted(process)

    def _fresh(self, why: str) -> Make:
        def make(spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> LocalProcess:
            self._say(spec, why)
            return self._counted(self._local.start(spec, device, watcher))

        return make

    def _counted(self, process: LocalProcess) -> LocalProcess:
        process.ended.add_done_callback(lambda _: self._tell(zygote.Left(_now())))
        return process

    def _serve(self) -> None:
        """Those who wait, in their order, as far as there is something for them."""
        while self._waiting:
            match zygote.door(self._state):
                case zygote.Ready() if self._spare is not None:
                    self._begin(self._make)
                case zygote.Fresh(why):
                    self._begin(self._fresh(why))
                case zygote.Ready():
                    if not self._patience.is_set:
                        self._patience.set(_now() + zygote.FORK_S)
                    return
                case _:
                    return
        self._patience.set(None)

    def _begin(self, make: Make) -> None:
        if not self._waiting.popleft().begin(make):
            self._tell(zygote.Left(_now()))

    def _withdrawn(self, worker: WaitingWorker) -> None:
        self._waiting.remove(worker)
        self._tell(zygote.Left(_now()))

    # -- the template

    def _tell(self, event: zygote.Event) -> None:
        self._state, commands = zygote.step(self._state, event)
        for command in commands:
            match command:
                case zygote.Start():
                    self._start()
                case zygote.Drop(why):
                    self._drop(why)
        self._alarm.set(zygote.wake_at(self._state))
        asyncio.get_running_loop().call_soon(self._serve)

    def _start(self) -> None:
        assert self._example is not None
        self._count += 1
        name = f"template-{self._count}".ljust(zygote.MARK_ROOM, "-")
        spec, device = self._example
        try:
            life = TemplateProcess(self._local, replace(spec, worker=name), device, self._set.preload, self)
        except (OSError, SpawnFailed) as error:
            self._tell(zygote.Died(_now(), f"it cannot be started: {error}"))
            return
        self._life = life
        self._lives.add(life)
        log.info("a template for %s is started", ", ".join(self._set.preload))

    def _drop(self, why: str) -> None:
        if self._life is not None:
            log.info("the template for %s is ended: %s", ", ".join(self._set.preload), why)
            self._life.end()
            self._life = None

    def on_message(self, life: TemplateProcess, message: dict[str, Any]) -> None:
        if life is not self._life:
            return
        match message["kind"]:
            case "ready":
                self._tell(zygote.BecameReady(_now()))
            case "refused":
                self._tell(zygote.WasRefused(_now(), message["why"]))
            case "failed":
                log.warning("the template for %s: %s", ", ".join(self._set.preload), message["why"])
            case "spare":
                self._patience.set(None)
                self._serve()

    def on_end(self, life: TemplateProcess, why: str) -> None:
        """Nothing of it is left. Its death was heard of by now, or by this."""
        self._lives.discard(life)

    def on_death(self, life: TemplateProcess, why: str) -> None:
        if life is self._life:
            log.warning("the template for %s %s", ", ".join(self._set.preload), why)
            self._life = None
            self._tell(zygote.Died(_now(), f"it {why}"))

    def discard(self) -> None:
        """The agent's own end: nobody waits any more, nothing starts again."""
        for worker in list(self._waiting):
            worker.kill()
        for life in self._lives:
            life.end()
        self._life = None

    async def ended(self) -> None:
        await asyncio.gather(*(life.ended for life in self._lives))
        await asyncio.sleep(0)  # the exits of those who waited
        self._alarm.set(None)
        self._patience.set(None)


class WaitingWorker:
    """A worker that has no process yet. What is asked of it meanwhile is done when it has one."""

    def __init__(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        withdrawn: Callable[[WaitingWorker], None],
    ) -> None:
        self._given = spec, device, watcher
        self._watcher = watcher
        self._withdrawn = withdrawn
        self._process: LocalProcess | None = None
        self._over = False
        self._frames: list[Frame] = []
        self._paused = False

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return 0 if self._process is None else self._process.pid

    def begin(self, make: Make) -> bool:
        """Whether it has a process now; without one its exit is told."""
        try:
            self._process = make(*self._given)
        except SpawnFailed as error:
            self._end(WorkerExit(1, str(error)))
            return False
        if self._paused:
            self._process.pause()
        for frame in self._frames:
            self._process.send(frame)
        return True

    def send(self, frame: Frame) -> None:
        if self._process is not None:
            self._process.send(frame)
        elif not self._over:
            self._frames.append(frame)

    def listen(self) -> Listener:
        return _nothing if self._process is None else self._process.listen()

    def pause(self) -> None:
        self._paused = True
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        self._paused = False
        if self._process is not None:
            self._process.resume()

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()
        else:
            self._give_up(signal.SIGTERM, "stopped by the agent (SIGTERM)")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        else:
            self._give_up(signal.SIGKILL, "killed by the agent")

    def _give_up(self, number: int, why: str) -> None:
        if not self._over:
            self._withdrawn(self)
            self._end(WorkerExit(-number, why))

    def _end(self, told: WorkerExit) -> None:
        """Told from the loop: whoever calls must have returned before."""
        self._over = True
        asyncio.get_running_loop().call_soon(self._watcher.on_exit, told)


class Spare:
    """A child of the agent's, forked ahead. Watched until a worker is made of it."""

    def __init__(self, pid: int, orders: socket.socket, lost: Callable[[Spare], None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._orders = orders
        self._lost = lost
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def become(self, birth: Birth) -> Spare:
        """Raises OSError; a worker's own end then tells nothing: kill it."""
        request = {
            "kind": "become",
            "module": birth.module,
            "command": birth.command,
            "folder": str(birth.folder),
            "environment": dict(birth.environment),
            "limits": dict(birth.limits),
        }
        try:
            words.send(self._orders, request, [birth.socket, birth.output])
        except words.TooLarge as error:
            raise OSError(0, str(error)) from None
        self._unwatch()
        return self

    def wait(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """It leaves when it notices; its exit is waited for still."""
        self._orders.close()

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
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
        owner: TemplateOf,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._tail = LogTail()
        self.spare: Spare | None = None
        self._spares: set[Spare] = set()
        self._names: tuple[str, ...] = ()
        self._origins: dict[str, str] = {}
        self._dead: str | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        with contextlib.ExitStack() as undo:
            self._control, theirs = words.pair()
            undo.callback(self._control.close)
            self._log_end, log_start = os.pipe()
            undo.callback(os.close, self._log_end)
            try:
                self._child = local.start_template(
                    spec, device, _command(theirs.fileno(), log_start, preload)
                )
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
        except OSError as error:  # no descriptor left: without an end it leaves, and is reaped as a stray
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
        self.ended.set_result(None)
        self._owner.on_end(self, self._dead)

    def _close_control(self) -> None:
        self._loop.remove_reader(self._control)
        self._control.close()

    def _read_log(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._log_end, PIPE_READ) if self._log_end >= 0 else b""
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


def _command(fd: int, output: int, preload: tuple[str, ...]) -> Started:
    environment = {**dict.fromkeys(words.THREAD_VARIABLES, "1"), words.ASK_NVML: "1"}
    return Started((MODULE, "--fd", str(fd), *preload), environment, fd, output)


def _nothing() -> tuple[str, ...]:
    return ()


def _now() -> float:
    return asyncio.get_running_loop().time()
