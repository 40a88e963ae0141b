"""Forks Python workers from zygotes. Implements Spawner, and runs `agent.workers.zygotes.zygote_machine`.

    spawn ── no preload ──────────────────────────────> a fresh interpreter (processes.local_spawner)
      └── the set's zygote is ready ──> its spare becomes the worker, at once
                              imports, or forks the next spare ──> PendingWorker ──> …
                              refused, dead, unfit ──> a fresh interpreter; the reason is logged

- A worker from a zygote is a LocalProcess and a child of the agent: it is logged and killed like any other.
- Zygotes and their spares end with the agent.
- `agent.workers.zygotes.zygote_machine` decides when a zygote is started and ended;
  `agent.workers.zygotes.zygote_process` is its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.errors import SpawnFailed
from stoker.agent.interfaces import WorkerWatcher
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.running_process import LocalProcess
from stoker.agent.workers.zygotes import zygote_machine
from stoker.agent.workers.zygotes.pending_worker import Make, PendingWorker
from stoker.agent.workers.zygotes.zygote_process import Spare, ZygoteProcess
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)


class ZygoteSpawner:
    """Forks the workers that can be forked; `local` starts the others."""

    def __init__(self, local: LocalSpawner) -> None:
        self._local = local
        self._sets: dict[zygote_machine.ImportSet, ZygoteSupervisor] = {}
        self._logged: set[str] = set()

    def spawn(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher
    ) -> LocalProcess | PendingWorker:
        if not spec.preload:
            return self._local.spawn(spec, device, watcher)
        accelerated = device is not None and device.kind != "cpu"
        owner = f"{spec.endpoint} {spec.volume}" if self._local.users.own else ""
        wanted = zygote_machine.import_set(
            spec.preload, spec.env, accelerated=accelerated, owner=owner, name=spec.worker
        )
        if why := self._local.unforkable(spec):
            wanted = zygote_machine.Fresh(why)
        if isinstance(wanted, zygote_machine.Fresh):
            self._log_once(spec, wanted.why)
            return self._local.spawn(spec, device, watcher)
        if wanted not in self._sets:
            self._sets = {one: zygote for one, zygote in self._sets.items() if not zygote.idle}
            self._sets[wanted] = ZygoteSupervisor(wanted, self._local, self._log_once)
        return self._sets[wanted].spawn(spec, device, watcher)

    def _log_once(self, spec: WorkerSpec, why: str) -> None:
        """Logs each reason once for each endpoint."""
        message = f"workers of endpoint {spec.endpoint} start in fresh interpreters: {why}"
        if message not in self._logged:
            self._logged.add(message)
            log.warning("%s", message)

    async def close(self) -> None:
        for zygote in self._sets.values():
            zygote.discard()
        await self._local.close()
        await asyncio.gather(*(zygote.ended() for zygote in self._sets.values()))


class ZygoteSupervisor:
    """Keeps one import set's zygote running, and forks its workers from it."""

    def __init__(
        self,
        wanted: zygote_machine.ImportSet,
        local: LocalSpawner,
        log_once: Callable[[WorkerSpec, str], None],
    ) -> None:
        self._set, self._local, self._log_once = wanted, local, log_once
        self._state = zygote_machine.ZygoteState()
        self._alarm = Alarm(lambda at: self._step(zygote_machine.Tick(at)))
        self._patience = Alarm(lambda at: self._step(zygote_machine.Silent(at)))
        self._life: ZygoteProcess | None = None
        self._lives: set[ZygoteProcess] = set()  # those that have not ended completely
        self._waiting: deque[PendingWorker] = deque()
        self._example: tuple[WorkerSpec, Device | None] | None = None
        self._count = 0
        self._discarded = False
        self._title = f"the zygote for {', '.join(wanted.preload)}"

    # -- workers

    def spawn(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher
    ) -> LocalProcess | PendingWorker:
        self._example = spec, device
        self._step(zygote_machine.Needed(loop_time()))
        make: Make = self._make
        match zygote_machine.availability(self._state):
            case zygote_machine.Ready() if self._spare is not None and not self._waiting:
                pass
            case zygote_machine.Importing() | zygote_machine.Ready():
                waiting = PendingWorker(spec, device, watcher, self._withdrawn)
                self._waiting.append(waiting)
                return waiting
            case zygote_machine.Fresh(why):
                make = self._fresh(why)
        try:
            return make(spec, device, watcher)
        except SpawnFailed:
            self._step(zygote_machine.Left(loop_time()))
            raise

    @property
    def idle(self) -> bool:
        """Returns whether the zygote can be dropped."""
        absent = isinstance(self._state.phase, zygote_machine.Absent) and self._state.users == 0
        return absent and not self._lives and self._alarm.at is None

    @property
    def _spare(self) -> Spare | None:
        return None if self._life is None else self._life.spare

    def _make(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> LocalProcess:
        """Makes a worker of the spare. Raises SpawnFailed."""
        assert self._life is not None
        if (why := self._life.unfit(spec.handler)) is not None:
            return self._fresh(why)(spec, device, watcher)
        spare = self._life.take_spare()
        try:
            process = self._local.spawn(spec, device, watcher, fork=spare.become, zygote=self._life.kept)
        except SpawnFailed as error:
            self._life.put_back(spare)
            return self._fresh(str(error))(spec, device, watcher)
        return self._counted(process)

    def _fresh(self, why: str) -> Make:
        def make(spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> LocalProcess:
            self._log_once(spec, why)
            return self._counted(self._local.spawn(spec, device, watcher))

        return make

    def _counted(self, process: LocalProcess) -> LocalProcess:
        process.ended.add_done_callback(lambda _: self._step(zygote_machine.Left(loop_time())))
        return process

    def _serve(self) -> None:
        """Starts the waiting workers in their order while there are spares."""
        while self._waiting:
            match zygote_machine.availability(self._state):
                case zygote_machine.Ready() if self._spare is not None:
                    self._begin(self._make)
                case zygote_machine.Fresh(why):
                    self._begin(self._fresh(why))
                case zygote_machine.Ready():
                    if self._patience.at is None:
                        self._patience.set(loop_time() + zygote_machine.FORK_S)
                    return
                case _:
                    return
        self._patience.set(None)

    def _begin(self, make: Make) -> None:
        if not self._waiting.popleft().begin(make):
            self._step(zygote_machine.Left(loop_time()))

    def _withdrawn(self, worker: PendingWorker) -> None:
        self._waiting.remove(worker)
        self._step(zygote_machine.Left(loop_time()))

    # -- the zygote

    def _step(self, event: zygote_machine.Event) -> None:
        if self._discarded:
            return
        self._state, commands = zygote_machine.step(self._state, event)
        for command in commands:
            match command:
                case zygote_machine.Start():
                    self._start()
                case zygote_machine.Drop(why):
                    self._drop(why)
        self._alarm.set(zygote_machine.wake_at(self._state))
        asyncio.get_running_loop().call_soon(self._serve)

    def _start(self) -> None:
        assert self._example is not None
        self._count += 1
        name = f"zygote-{self._count}".ljust(zygote_machine.MARK_ROOM, "-")
        spec, device = self._example
        try:
            life = ZygoteProcess(self._local, replace(spec, worker=name), device, self._set.preload, self)
        except (OSError, SpawnFailed) as error:
            self._step(zygote_machine.Died(loop_time(), f"it cannot be started: {error}"))
            return
        self._life = life
        self._lives.add(life)
        log.info("%s is started", self._title)

    def _drop(self, why: str) -> None:
        if self._life is not None:
            log.info("%s is ended: %s", self._title, why)
            self._life.end()
            self._life = None

    def on_message(self, life: ZygoteProcess, message: dict[str, Any]) -> None:
        if life is not self._life:
            return
        match message["kind"]:
            case "ready":
                log.info("%s is ready", self._title)
                self._step(zygote_machine.BecameReady(loop_time()))
            case "refused":
                self._step(zygote_machine.WasRefused(loop_time(), message["why"]))
            case "failed":
                log.warning("%s: %s", self._title, message["why"])
            case "spare":
                self._patience.set(None)
                self._serve()

    def on_end(self, life: ZygoteProcess) -> None:
        self._lives.discard(life)

    def on_death(self, life: ZygoteProcess, why: str) -> None:
        if life is self._life:
            log.warning("%s has ended: %s", self._title, why)
            self._life = None
            self._step(zygote_machine.Died(loop_time(), why))

    def discard(self) -> None:
        """Ends everything with the agent: no worker waits any more, and nothing starts again."""
        self._discarded = True
        self._alarm.set(None)
        self._patience.set(None)
        for worker in list(self._waiting):
            worker.kill()
        for life in self._lives:
            life.end()
        self._life = None

    async def ended(self) -> None:
        await asyncio.gather(*(life.ended for life in self._lives))
        await asyncio.sleep(0)  # lets the exits of pending workers be delivered
