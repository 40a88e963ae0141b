"""Watches the node's devices, and closes them to work while something is wrong.

Runs `agent.host.devices.health` and `agent.host.devices.memory_gate`. One task samples all devices every
SAMPLE_S, with or without a connection; an Xid makes it sample at once.

    event                    what follows
    a device is unhealthy    its attempts end `lost`, its workers are killed, none starts, it is reported
    it is healthy again      the workers that wait for it are started
    a process has ended      its device is measured until its memory is free; then the next process may start
    a job was stopped        `unclean` describes what it left, until the worker's memory is back at its level

A worker may have several devices, and a device several workers. While others have a process on a device, the
memory that one of them left cannot be distinguished from theirs, so it is measured when the last process has
ended.

A worker that outlives SIGKILL (a process that hangs in the driver) loses its attempts after UNREAPED_S, so
that they run elsewhere. A CPU device has no memory to check, and is never closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.agent.alarm import loop_time
from stoker.agent.host.devices import health as device_health
from stoker.agent.host.devices import memory_gate
from stoker.agent.host.devices.health import Answered, DeviceHealth, DeviceProblem, DeviceReading, Xid
from stoker.agent.host.devices.interfaces import DeviceWorker, Sampler
from stoker.agent.host.devices.memory_gate import Level, MemoryGate
from stoker.wire.messages import AttemptKey, Device, DeviceSample

log = logging.getLogger(__name__)

SAMPLE_S = 5.0
POLL_FIRST_S = 0.01
POLL_LONGEST_S = 0.5
UNREAPED_S = 10.0


W = TypeVar("W", bound=DeviceWorker)


class _Watched(Struct):
    """The watched state of one device. `on_it` are the workers with a process on the device. `returning`: its
    memory is being measured."""

    device: Device
    sample: DeviceSample
    health: DeviceHealth = field(default_factory=DeviceHealth)
    gate: MemoryGate = field(default_factory=MemoryGate)
    living: set[str] = field(default_factory=set)
    returning: bool = False

    @property
    def problem(self) -> DeviceProblem | None:
        return self.health.problem or (DeviceProblem(self.gate.problem) if self.gate.problem else None)


class DeviceWatch(Generic[W]):
    """The watch over this node's devices. `workers` are those of this node, by name. `lose` ends a worker's
    attempts as lost; `let_go` ends those of a worker that cannot be reaped. `changed` is set when a device
    becomes unhealthy or healthy, `looked` after the first samples."""

    def __init__(
        self,
        sampler: Sampler,
        workers: Mapping[str, W],
        *,
        lose: Callable[[W, str], None],
        let_go: Callable[[W, str], None],
    ) -> None:
        self._sampler = sampler
        self._workers, self._lose, self._let_go = workers, lose, let_go
        self._watched = {
            device.uuid: _Watched(
                device, DeviceSample(device.uuid), gate=MemoryGate(known=device.kind == "cpu")
            )
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

    def new_samples(self) -> tuple[DeviceSample, ...]:
        """Returns the newest samples if they were not returned before."""
        fresh, self._fresh = self._fresh, False
        self.changed.clear()
        return self.samples() if fresh else ()

    # -- the task

    async def run(self) -> None:
        """Runs until cancelled; then all its tasks are cancelled."""
        self._sampler.listen(self._xid)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._sample_on()
        finally:
            self._tasks = None

    async def _sample_on(self) -> None:
        while True:
            self._due.clear()
            idle = self._idle_alone()
            try:
                self._on_readings(await self._sampler.read(), idle)
            except Exception:
                log.exception("the devices could not be sampled")
            self.looked.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(SAMPLE_S):
                    await self._due.wait()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """Starts a task. Does nothing once `run` has ended."""
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

    def _idle_alone(self) -> set[tuple[str, str]]:
        """Returns the idle workers that are alone on a device, each with that device."""
        return {
            (worker.name, uuid)
            for uuid, watched in self._watched.items()
            for worker in self._on_device(uuid)
            if watched.living == {worker.name} and not worker.running
        }

    def _on_device(self, uuid: str) -> list[W]:
        return [worker for worker in self._workers.values() if uuid in worker.spec.devices]

    def _on_readings(self, readings: Iterable[DeviceReading], idle: Set[tuple[str, str]]) -> None:
        """Judges the devices by their readings. `idle` are the workers that were idle and alone before the
        reading, which may have taken seconds."""
        self._fresh = True
        for reading in readings:
            watched = self._watched[reading.sample.uuid]
            watched.health = device_health.step(watched.health, reading.seen)
            watched.sample = replace(reading.sample, ill=watched.sample.ill)
            if isinstance(reading.seen, Answered):
                self._on_memory(watched, reading.sample.memory_used, idle & self._idle_alone())
            elif not watched.gate.known:
                watched.gate = memory_gate.measured(watched.gate, loop_time(), None)
            self._judge(watched)

    def _on_memory(self, watched: _Watched, used_bytes: int | None, idle: Set[tuple[str, str]]) -> None:
        """Compares the memory in use with what was expected; also notices memory that was freed after
        RETURN_S. What a host has in use says nothing of a GPU that uses its memory."""
        if watched.device.kind == "cpu":
            return
        if watched.device.unified_memory:
            used_bytes = None
        if not watched.living:
            watched.gate = memory_gate.measured(watched.gate, loop_time(), used_bytes)
        for worker, uuid in idle:
            if uuid == watched.device.uuid:
                self._settle(worker, uuid, used_bytes)

    def _judge(self, watched: _Watched) -> None:
        """Acts if the device's problem has changed, and starts the workers that wait for the device."""
        problem = watched.problem
        why = "" if problem is None else problem.why
        if why != watched.sample.ill:
            watched.sample = replace(watched.sample, ill=why)
            self._fresh = True
            self.changed.set()
            log.error("device %s: %s", watched.device.uuid, why or "healthy again")
            if problem is not None and not problem.spare:
                self._clear(watched, f"device {watched.device.uuid} is unhealthy: {why}")
        if problem is None and watched.gate.open:
            for worker in list(self._on_device(watched.device.uuid)):
                worker.start_if_pending()

    def _clear(self, watched: _Watched, why: str) -> None:
        for worker in list(self._on_device(watched.device.uuid)):
            if worker.name in watched.living:
                running = frozenset(worker.running)
                self._lose(worker, why)
                worker.kill(why)
                if running:
                    self._begin(self._let_go_later(worker, running, why), f"let go of {worker.name}")

    async def _let_go_later(self, worker: W, running: frozenset[AttemptKey], why: str) -> None:
        await asyncio.sleep(UNREAPED_S)
        if running & worker.running:
            self._let_go(worker, why)

    # -- for workers, which tell when they use devices

    def closed(self, devices: Sequence[str]) -> bool:
        """Returns whether no process may be started on these devices now. Pending workers are started once
        one may."""
        watched = [self._watched[uuid] for uuid in devices if uuid in self._watched]
        return any(one.problem is not None or not one.gate.open for one in watched)

    def started(self, worker: str, devices: Sequence[str]) -> None:
        for watched in self._gpus(devices):
            watched.living.add(worker)

    def ready(self, worker: str, devices: Sequence[str]) -> None:
        """Measures the worker's level at once, before its first job."""
        for watched in self._gpus(devices):
            uuid = watched.device.uuid
            if watched.gate.baseline is not None and watched.living == {worker}:
                self._levels[worker, uuid] = Level()
                self._begin(self._level(worker, uuid), f"level of {worker} on {uuid}")
            elif watched.living != {worker}:
                log.info("device %s is shared: what a stopped job of %s leaves is not measured", uuid, worker)

    async def _level(self, worker: str, uuid: str) -> None:
        self._settle(worker, uuid, await self._sampler.memory_used(uuid))

    def _settle(self, worker: str, uuid: str, used_bytes: int | None) -> None:
        if (worker, uuid) in self._levels:
            self._levels[worker, uuid] = memory_gate.settled(self._levels[worker, uuid], used_bytes)

    def ended(self, worker: str, devices: Sequence[str]) -> None:
        """Forgets a worker's use of its devices. To be called when the worker's process was reaped."""
        for watched in self._gpus(devices):
            self._levels.pop((worker, watched.device.uuid), None)
            watched.living.discard(worker)
            if not watched.living:
                watched.gate = memory_gate.left(watched.gate, loop_time())
            if watched.gate.since is not None and not watched.returning:
                watched.returning = self._begin(self._until_back(watched), f"memory of {watched.device.uuid}")

    async def _until_back(self, watched: _Watched) -> None:
        """Measures often at first; once the memory is late, the samples suffice."""
        wait = POLL_FIRST_S
        while watched.gate.since is not None and not watched.gate.late:
            used_bytes = await self._sampler.memory_used(watched.device.uuid)
            watched.gate = memory_gate.measured(watched.gate, loop_time(), used_bytes)
            self._judge(watched)
            if watched.gate.since is not None:
                await asyncio.sleep(wait)
                wait = min(2 * wait, POLL_LONGEST_S)
        watched.returning = False

    # -- after a job that was stopped

    def checks(self, worker: DeviceWorker, devices: Sequence[str]) -> bool:
        """Returns whether what a stopped job left can be measured: not while other jobs run on its worker or
        devices."""
        gpus = self._gpus(devices)
        return (
            bool(gpus) and len(worker.running) == 1 and all(self._has_level(worker.name, one) for one in gpus)
        )

    def _has_level(self, worker: str, watched: _Watched) -> bool:
        level = self._levels.get((worker, watched.device.uuid))
        return level is not None and level.used_bytes is not None and watched.living == {worker}

    async def unclean(self, worker: str, devices: Sequence[str]) -> str:
        """Describes the memory that a stopped job left in use; returns "" if its worker may take the next."""
        found = [await self._left_on(worker, watched) for watched in self._gpus(devices)]
        return next(filter(None, found), "")

    async def _left_on(self, worker: str, watched: _Watched) -> str:
        uuid = watched.device.uuid
        used_bytes = await self._sampler.memory_used(uuid)
        if not self._has_level(worker, watched):  # it ended meanwhile, or is no longer alone there
            return ""
        level = self._levels[worker, uuid]
        self._levels[worker, uuid] = replace(level, stopped=True)
        return memory_gate.above(level, used_bytes)

    def _gpus(self, devices: Sequence[str]) -> list[_Watched]:
        found = (self._watched.get(uuid) for uuid in devices)
        return [watched for watched in found if watched is not None and watched.device.kind != "cpu"]
