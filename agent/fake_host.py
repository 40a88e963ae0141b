"""A host without devices or disks: the Sampler and the Scratch of tests and the simulation."""

from __future__ import annotations

import os

from stoker.agent.seams import FileRefused
from stoker.wire.messages import AttemptKey, Device, DeviceSample

CPU = Device("cpu-0", "cpu", "a processor")


class FakeSampler:
    def __init__(self, devices: tuple[Device, ...] = (CPU,)) -> None:
        self._devices = devices

    def inventory(self) -> tuple[Device, ...]:
        return self._devices

    async def sample(self) -> tuple[DeviceSample, ...]:
        return tuple(DeviceSample(device.uuid, memory_used=1) for device in self._devices)


class MemoryScratch:
    """`folders` are those that exist now. `full`: none can be made. `refuse`: the sentence for any file."""

    def __init__(self) -> None:
        self.folders: set[AttemptKey] = set()
        self.full = False
        self.refuse: str | None = None

    def make(self, key: AttemptKey) -> str:
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
