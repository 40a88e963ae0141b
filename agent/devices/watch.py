"""The node's devices as work meets them: looked at, judged, and closed to work while something is wrong.

The shell of `agent.device_health` and `agent.memory_gate`. One task looks at every device each LOOK_S, with
or without a connection; an Xid is heard at once, and makes it look at once.

    a device falls ill -> what runs there ends `lost`, its workers are killed, none starts, control is told
    it is well again   -> the workers that wait for it are started
    a process has left -> its device is measured, off the loop, until its memory is back; then the next starts
    a job was stopped  -> `unclean` says what it left, until the level of its worker is reached

A worker may have several devices, and a device several workers. While others have a process on a device, what
one of them has left there cannot be told from theirs: it is measured when the last has gone.

A worker that outlives its kill (a process that hangs in the driver dies of no signal) loses its attempts
after UNREAPED_S all the same: they run elsewhere. A processor has no such memory, and is never closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from stoker.agent import device_health, memory_gate
from stoker.agent.device_health import Answered, Health, Illness, Look, Xid
from stoker.agent.memory_gate import Gate, Level
from stoker.agent.seams import Occupant, Sampler
from stoker.wire.messages import AttemptKey, Device, DeviceSample

log = logging.getLogger(__name__)

LOOK_S = 5.0
POLL_FIRST_S = 0.01
POLL_LONGEST_S = 0.5
UNREAPED_S = 10.0


W = TypeVar("W", bound=Occupant)


@dataclass(frozen=True, slots=True)
class Occupants(Generic[W]):
    """The workers on a device. `lose` ends a worker's attempts as lost, `let_go` those that its process would
    not let go of."""

    on_device: Callable[[str], Sequence[W]]
    lose: Callable[[W, str], None]
    let_go: Callable[[W, str], None]


@dataclass(slots=True)
class _Watched:
    """`living` are the workers that have a process on it."""

    device: Device
    sample: DeviceSample
    health: Health = field(default_factory=Health)
    gate: Gate = field(default_factory=Gate)
    living: set[str] = field(default_factory=set)
    returning: bool = False

    @property
    def ill(self) -> Illness | None:
        return self.health.ill or (Illness(self.gate.ill) if self.gate.ill else None)


class DeviceWatch(Generic[W]):
    """`changed` is set when a device fell ill or got well; `looked` once the first look is over."""

    def __init__(self, sampler: Sampler, occupants: Occupants[W]) -> None:
        self._sampler = sampler
        self._occupants = occupants
        self._watched = {
            device.uuid: _Watched(device, DeviceSample(device.uuid), gate=Gate(known=device.kind == "cpu"))
            for device in sampler.inventory()
        }
        self._levels: dict[tuple[str, str], Level] = {}  # by worker and device
        self._tasks: asyncio.TaskGroup | None = None
        self._due = asyncio.Event()
        self._fresh = False
        self.looked = asyncio.Event()
        self.changed = asyncio.Event()

    # -- for control

    def samples(self) -> tuple[DeviceSample, ...]:
        return tuple(watched.sample for watched in self._watched.values())

    def news(self) -> tuple[DeviceSample, ...]:
        """The newest samples, once."""
        fresh, self._fresh = self._fresh, False
        self.changed.clear()
        return self.samples() if fresh else ()

    # -- the task

    async def run(self) -> None:
        """Until cancelled; what it began ends with it."""
        self._sampler.listen(self._xid)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._look_on()
        finally:
            self._tasks = None

    async def _look_on(self) -> None:
        while True:
            self._due.clear()
            resting = self._resting()
            try:
                self._saw(await self._sampler.look(), resting)
            except Exception:
                log.exception("the devices could not be looked at")
            self.looked.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._due.wait()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """Nothing begins any more once `run` is over."""
        if self._tasks is None:
            work.close()
            return False
        self._tasks.create_task(work, name=name)
        return True

    def _xid(self, uuid: str, number: int) -> None:
        own = number in device_health.APPLICATION_XIDS
        log.log(logging.INFO if own else logging.ERROR, "device %s: Xid %d", uuid, number)
        if (watched := self._watched.get(uuid)) is not None:
            watched.health = device_health.step(watched.health, Xid(number))
            self._judge(watched)
        self._due.set()

    def _resting(self) -> set[tuple[str, str]]:
        """Workers without a job that are alone on a device, with it."""
        return {
            (worker.name, uuid)
            for uuid, watched in self._watched.items()
            for worker in self._occupants.on_device(uuid)
            if watched.living == {worker.name} and not worker.running
        }

    def _saw(self, looks: Iterable[Look], resting: Set[tuple[str, str]]) -> None:
        """`resting` are those who were so when the look began: it may have taken seconds."""
        self._fresh = True
        for look in looks:
            watched = self._watched[look.sample.uuid]
            watched.health = device_health.step(watched.health, look.seen)
            watched.sample = replace(look.sample, ill=watched.sample.ill)
            if isinstance(look.seen, Answered):
                self._measured_by_a_look(watched, look.sample.memory_used, resting & self._resting())
            elif not watched.gate.known:
                watched.gate = memory_gate.measured(watched.gate, _now(), None)
            self._judge(watched)

    def _measured_by_a_look(self, watched: _Watched, used: int | None, resting: Set[tuple[str, str]]) -> None:
        """Memory that came back after RETURN_S is noticed here, too."""
        if watched.device.kind == "cpu":
            return
        if not watched.living:
            watched.gate = memory_gate.measured(watched.gate, _now(), used)
        for worker, uuid in resting:
            if uuid == watched.device.uuid:
                self._settle(worker, uuid, used)

    def _judge(self, watched: _Watched) -> None:
        """Tells and acts where the verdict has changed, and lets those in that wait."""
        ill = watched.ill
        why = "" if ill is None else ill.why
        if why != watched.sample.ill:
            watched.sample = replace(watched.sample, ill=why)
            self._fresh = True
            self.changed.set()
            log.error("device %s: %s", watched.device.uuid, why or "well again")
            if ill is not None and not ill.spare:
                self._clear(watched, f"device {watched.device.uuid} is ill: {why}")
        if ill is None and watched.gate.open:
            for worker in list(self._occupants.on_device(watched.device.uuid)):
                worker.start_if_waiting()

    def _clear(self, watched: _Watched, why: str) -> None:
        for worker in list(self._occupants.on_device(watched.device.uuid)):
            if worker.name in watched.living:
                running = frozenset(worker.running)
                self._occupants.lose(worker, why)
                worker.kill(why)
                if running:
                    self._begin(self._let_go(worker, running, why), f"let go of {worker.name}")

    async def _let_go(self, worker: W, running: frozenset[AttemptKey], why: str) -> None:
        await asyncio.sleep(UNREAPED_S)
        if running & worker.running:
            self._occupants.let_go(worker, why)

    # -- what workers tell (a DeviceGate)

    def closed(self, devices: Sequence[str]) -> bool:
        watched = [self._watched[uuid] for uuid in devices if uuid in self._watched]
        return any(one.ill is not None or not one.gate.open for one in watched)

    def started(self, worker: str, devices: Sequence[str]) -> None:
        for watched in self._gpus(devices):
            watched.living.add(worker)

    def ready(self, worker: str, devices: Sequence[str]) -> None:
        """Its level is asked for at once: its first job is not there yet."""
        for watched in self._gpus(devices):
            uuid = watched.device.uuid
            if watched.gate.baseline is not None and watched.living == {worker}:
                self._levels[worker, uuid] = Level()
                self._begin(self._level(worker, uuid), f"level of {worker} on {uuid}")
            elif watched.living != {worker}:
                log.info("device %s is shared: what a stopped job of %s leaves is not measured", uuid, worker)

    async def _level(self, worker: str, uuid: str) -> None:
        self._settle(worker, uuid, await self._sampler.memory_used(uuid))

    def _settle(self, worker: str, uuid: str, used: int | None) -> None:
        if (worker, uuid) in self._levels:
            self._levels[worker, uuid] = memory_gate.settled(self._levels[worker, uuid], used)

    def ended(self, worker: str, devices: Sequence[str]) -> None:
        for watched in self._gpus(devices):
            self._levels.pop((worker, watched.device.uuid), None)
            watched.living.discard(worker)
            if not watched.living:
                watched.gate = memory_gate.left(watched.gate, _now())
            if watched.gate.since is not None and not watched.returning:
                watched.returning = self._begin(self._until_back(watched), f"memory of {watched.device.uuid}")

    async def _until_back(self, watched: _Watched) -> None:
        """Quickly at first; once it is late, the looks are enough."""
        wait = POLL_FIRST_S
        while watched.gate.since is not None and not watched.gate.late:
            used = await self._sampler.memory_used(watched.device.uuid)
            watched.gate = memory_gate.measured(watched.gate, _now(), used)
            self._judge(watched)
            if watched.gate.since is not None:
                await asyncio.sleep(wait)
                wait = min(2 * wait, POLL_LONGEST_S)
        watched.returning = False

    # -- after a job that was stopped

    def checks(self, worker: Occupant, devices: Sequence[str]) -> bool:
        """Whether what a stopped job left can be told: not while others run on its worker or its devices."""
        gpus = self._gpus(devices)
        return bool(gpus) and len(worker.running) == 1 and all(self._told(worker.name, one) for one in gpus)

    def _told(self, worker: str, watched: _Watched) -> bool:
        level = self._levels.get((worker, watched.device.uuid))
        return level is not None and level.used is not None and watched.living == {worker}

    async def unclean(self, worker: str, devices: Sequence[str]) -> str:
        """What a stopped job left in use, in words; empty when its worker may take the next."""
        found = [await self._left_on(worker, watched) for watched in self._gpus(devices)]
        return next(filter(None, found), "")

    async def _left_on(self, worker: str, watched: _Watched) -> str:
        uuid = watched.device.uuid
        used = await self._sampler.memory_used(uuid)
        if not self._told(worker, watched):  # it ended meanwhile, or is no longer alone there
            return ""
        level = self._levels[worker, uuid]
        self._levels[worker, uuid] = replace(level, stopped=True)
        return memory_gate.above(level, used)

    def _gpus(self, devices: Sequence[str]) -> list[_Watched]:
        found = (self._watched.get(uuid) for uuid in devices)
        return [watched for watched in found if watched is not None and watched.device.kind != "cpu"]


def _now() -> float:
    return asyncio.get_running_loop().time()
