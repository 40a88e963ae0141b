"""Python workers forked from templates: the shell of `agent.zygote`, and a Spawner in front of the local one.

    spawn ── no preload ──────────────────────────────> a fresh interpreter (agent.local_process)
      └── the set's template: ready ──> its spare becomes the worker, at once
                              importing, or between two spares ──> WaitingWorker ──> …
                              refused, dead, unfit ──> a fresh interpreter, with the reason in the log

- A worker from a template is a LocalProcess: same end, same log, same kill. It is the agent's own child.
- A template, its spares and whatever is between them end with the agent.
- When there is a template, `agent.zygote` decides; its process is `agent.template_process`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stoker.agent import zygote
from stoker.agent.alarm import Alarm
from stoker.agent.local_process import LocalSpawner
from stoker.agent.seams import SpawnFailed, WorkerWatcher
from stoker.agent.started_process import LocalProcess
from stoker.agent.template_process import Spare, TemplateProcess
from stoker.agent.waiting_worker import Make, WaitingWorker
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)


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
        owner = f"{spec.endpoint} {spec.volume}" if self._local.users.own else ""
        wanted = zygote.import_set(
            spec.preload, spec.env, accelerated=accelerated, owner=owner, name=spec.worker
        )
        if why := self._local.unforkable(spec):
            wanted = zygote.Fresh(why)
        if isinstance(wanted, zygote.Fresh):
            self._say(spec, wanted.why)
            return self._local.spawn(spec, device, watcher)
        if wanted not in self._sets:
            self._sets = {one: template for one, template in self._sets.items() if not template.idle}
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
        self._discarded = False
        self._title = f"the template for {', '.join(wanted.preload)}"

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
    def idle(self) -> bool:
        """Whether forgetting it would change nothing."""
        absent = isinstance(self._state.phase, zygote.Absent) and self._state.users == 0
        return absent and not self._lives and not self._alarm.is_set

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
            process = self._local.start(spec, device, watcher, fork=spare.become, template=self._life.kept)
        except SpawnFailed as error:
            self._life.put_back(spare)
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
        if self._discarded:
            return
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
        log.info("%s is started", self._title)

    def _drop(self, why: str) -> None:
        if self._life is not None:
            log.info("%s is ended: %s", self._title, why)
            self._life.end()
            self._life = None

    def on_message(self, life: TemplateProcess, message: dict[str, Any]) -> None:
        if life is not self._life:
            return
        match message["kind"]:
            case "ready":
                log.info("%s is ready", self._title)
                self._tell(zygote.BecameReady(_now()))
            case "refused":
                self._tell(zygote.WasRefused(_now(), message["why"]))
            case "failed":
                log.warning("%s: %s", self._title, message["why"])
            case "spare":
                self._patience.set(None)
                self._serve()

    def on_end(self, life: TemplateProcess) -> None:
        self._lives.discard(life)

    def on_death(self, life: TemplateProcess, why: str) -> None:
        if life is self._life:
            log.warning("%s has ended: %s", self._title, why)
            self._life = None
            self._tell(zygote.Died(_now(), why))

    def discard(self) -> None:
        """The agent's own end: nobody waits any more, nothing starts again."""
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
        await asyncio.sleep(0)  # the exits of those who waited


def _now() -> float:
    return asyncio.get_running_loop().time()
