"""The interfaces between devices and those who use them.

`Sampler` is implemented by `agent.host.devices.devices` and by `testing.fake_host`, `DeviceWorker` by
`agent.workers.lifecycle.worker`. The rules of `agent.interfaces` apply here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from stoker.agent.host.devices.health import DeviceReading
from stoker.wire.messages import AttemptKey, Device, WorkerSpec


class DevicesUnknown(Exception):
    """There is a driver, but it does not list its devices. The message is for the operator."""


class Sampler(Protocol):
    def inventory(self) -> tuple[Device, ...]: ...

    async def read(self) -> tuple[DeviceReading, ...]:
        """Reads every device, each within a deadline of its own."""

    async def memory_used(self, uuid: str) -> int | None:
        """Returns the bytes in use now, or None if the driver does not report them in time."""

    async def memory_of_processes(self, uuid: str, pids: Collection[int]) -> int | None:
        """Returns the bytes that these processes hold, or None if the driver does not report them by
        process."""

    def listen(self, on_xid: Callable[[str, int], None]) -> None:
        """Calls `on_xid(device, Xid)` for every Xid from now on, on the loop's thread. To be called once."""


class DeviceWorker(Protocol):
    """The part of a worker that the watch of its devices uses. `running` are the attempts in its slots."""

    @property
    def spec(self) -> WorkerSpec: ...

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> set[AttemptKey]: ...

    def kill(self, why: str) -> None: ...

    def start_if_pending(self) -> None: ...
