"""The interfaces between devices and those who use them.

`Sampler` is implemented by `agent.devices.devices` and by `testing.fake_host`; `DeviceGate` and `MemoryCheck`
by `agent.devices.watch`. The rules of `agent.interfaces` apply here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from stoker.agent.devices.health import DeviceReading
from stoker.wire.messages import AttemptKey, Device, WorkerSpec


class Sampler(Protocol):
    def inventory(self) -> tuple[Device, ...]: ...

    async def read(self) -> tuple[DeviceReading, ...]:
        """Reads every device, each within a deadline of its own."""

    async def memory_used(self, uuid: str) -> int | None:
        """Returns the bytes in use now, or None if the driver does not report them in time."""

    async def memory_held(self, uuid: str, pids: Collection[int]) -> int | None:
        """Returns the bytes that these processes hold, or None if the driver does not report them by
        process."""

    def listen(self, on_xid: Callable[[str, int], None]) -> None:
        """Calls `on_xid(device, Xid)` for every Xid from now on, on the loop's thread. To be called once."""


class DeviceGate(Protocol):
    """Decides whether work may use devices. Workers report to it when they use them."""

    def closed(self, devices: Sequence[str]) -> bool:
        """Returns whether no process may be started there now. Pending workers are started once one may."""

    def started(self, worker: str, devices: Sequence[str]) -> None: ...

    def ready(self, worker: str, devices: Sequence[str]) -> None: ...

    def ended(self, worker: str, devices: Sequence[str]) -> None:
        """To be called when the worker's process was reaped."""


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


class MemoryCheck(Protocol):
    """Measures what a stopped job has left in its device's memory."""

    def checks(self, worker: DeviceWorker, devices: Sequence[str]) -> bool:
        """Returns whether that can be measured."""

    async def unclean(self, worker: str, devices: Sequence[str]) -> str:
        """Describes what is left; returns "" if the worker may take the next job."""
