"""A host without devices or disks: the Sampler and the Scratch of tests and the simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from stoker.agent.host.devices.health import Answered, DeviceReading, Lost, Missed
from stoker.agent.interfaces import FileRefused
from stoker.wire.messages import AttemptKey, Device, DeviceSample

CPU = Device("cpu-0", "cpu", "a CPU")


class FakeSampler:
    """A sampler whose test sets the `memory` in bytes and the `health` of each device, and the memory of a
    process on a device (`process_memory`); of a GPU that uses the host's memory, `memory` is the host's.
    `report_xid` reports an Xid. `measured` counts the calls of `memory_used`."""

    def __init__(self, devices: tuple[Device, ...] = (CPU,)) -> None:
        self._devices = devices
        self.memory: dict[str, int | None] = {device.uuid: 1 for device in devices}
        self.process_memory: dict[tuple[str, int], int] = {}
        self.health: dict[str, Answered | Missed | Lost] = {}
        self.measured = 0
        self.report_xid: Callable[[str, int], None] = lambda uuid, xid: None

    def inventory(self) -> tuple[Device, ...]:
        return self._devices

    async def read(self) -> tuple[DeviceReading, ...]:
        return tuple(
            DeviceReading(
                DeviceSample(uuid, memory_used=self.memory[uuid]), self.health.get(uuid, Answered())
            )
            for uuid in self.memory
        )

    async def memory_used(self, uuid: str) -> int | None:
        self.measured += 1
        unified = any(device.unified_memory for device in self._devices if device.uuid == uuid)
        return None if unified else self.memory[uuid]

    async def memory_of_processes(self, uuid: str, pids: Collection[int]) -> int | None:
        return sum(self.process_memory.get((uuid, pid), 0) for pid in pids)

    def listen(self, on_xid: Callable[[str, int], None]) -> None:
        self.report_xid = on_xid


class MemoryScratch:
    """The scratch folders of attempts, without a disk. `folders` are those of the attempts that run now.
    `full`: the disk is. `refuse`: the message for any file."""

    def __init__(self) -> None:
        self.folders: set[AttemptKey] = set()
        self.full = False
        self.refuse: str | None = None

    def prepare(self, key: AttemptKey, worker: str = "") -> str:
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
