"""A host without devices or disks: the Sampler and the Scratch of tests and the simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from stoker.agent.device_health import Answered, Look, Lost, Missed
from stoker.agent.seams import FileRefused
from stoker.wire.messages import AttemptKey, Device, DeviceSample

CPU = Device("cpu-0", "cpu", "a processor")


class FakeSampler:
    """`memory` in bytes and what is `seen` are set by the test, for each device; `hear` tells an Xid.
    `held` is what one process holds of one device. `measured` counts the questions for memory alone."""

    def __init__(self, devices: tuple[Device, ...] = (CPU,)) -> None:
        self._devices = devices
        self.memory: dict[str, int | None] = {device.uuid: 1 for device in devices}
        self.held: dict[tuple[str, int], int] = {}
        self.seen: dict[str, Answered | Missed | Lost] = {}
        self.measured = 0
        self.hear: Callable[[str, int], None] = lambda uuid, xid: None

    def inventory(self) -> tuple[Device, ...]:
        return self._devices

    async def look(self) -> tuple[Look, ...]:
        return tuple(
            Look(DeviceSample(uuid, memory_used=self.memory[uuid]), self.seen.get(uuid, Answered()))
            for uuid in self.memory
        )

    async def memory_used(self, uuid: str) -> int | None:
        self.measured += 1
        return self.memory[uuid]

    async def memory_held(self, uuid: str, pids: Collection[int]) -> int | None:
        return sum(self.held.get((uuid, pid), 0) for pid in pids)

    def listen(self, hear: Callable[[str, int], None]) -> None:
        self.hear = hear


class MemoryScratch:
    """`folders` are those that exist now. `full`: none can be made. `refuse`: the sentence for any file."""

    def __init__(self) -> None:
        self.folders: set[AttemptKey] = set()
        self.full = False
        self.refuse: str | None = None

    def make(self, key: AttemptKey, worker: str = "") -> str:
        if self.full:
            raise OSError(28, "No space left on device")
        self.folders.add(key)
        return f"/scratch/{key.job}/{key.attempt}"

    def remove(self, key: AttemptKey) -> None:
        self.folders.discard(key)

    def check(self, key: AttemptKey, fd: int) -> int:
        if self.refuse is not None:
            raise FileRefused(self.refuse)
        return os.fstat(fd).st_size
