"""Reads the host's devices: GPUs through NVML if there is a driver, and the CPU.

Each GPU has a thread, which makes one driver call at a time, each with a deadline. A driver call that hangs
blocks one thread and the samples of that GPU, but not the agent. What the driver does not report is None.

    called --returned in time--> a reading of the device
       |----deadline passed----> missed, until the call returns: a stuck GPU is not called again meanwhile

`agent.host.devices.driver` makes the calls, `xid_listener` beside it waits for Xids; both are imported where
the driver's library is found, as NVML's bindings take 2 MB. `agent.host.devices.health` decides by readings
and Xids whether a device is healthy. A driver that fails is an error, and never counts as a host without
GPUs: jobs would run on the CPU.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.agent.host.devices.cpu_device import CpuDevice
from stoker.agent.host.devices.health import DeviceReading, Lost, Missed
from stoker.agent.host.devices.interfaces import DevicesUnknown
from stoker.wire.messages import Device, DeviceSample

if TYPE_CHECKING:
    from stoker.agent.host.devices.driver import Gpu

T = TypeVar("T")

DEADLINE_S = 2.0
START_DEADLINE_S = 30.0
"""The first call initialises the driver, which takes seconds if no persistence daemon runs."""


class _DriverThread:
    """A daemon thread that runs one driver call at a time. It cannot be stopped: a thread inside a driver
    call ends with the process, and does not delay that."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._late: Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def stuck(self) -> bool:
        """Returns whether a call that exceeded its deadline has not returned yet."""
        return self._late is not None and not self._late.done()

    def run(self, call: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._calls.put((call, answer))
        return answer

    def give_up(self, answer: Future[Any]) -> None:
        """Gives up a call whose deadline has passed. A call that has not begun is cancelled."""
        if not answer.cancel():
            self._late = answer

    def _run(self) -> None:
        while True:
            call, answer = self._calls.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)


class NvmlSampler:
    """Implements Sampler. The inventory is that of the agent's start, and includes GPUs that the driver lists
    but cannot open. Raises DevicesUnknown."""

    def __init__(self, deadline_s: float = DEADLINE_S, start_deadline_s: float = START_DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._gpus = _in_time(_find_gpus, start_deadline_s)
        self._threads = {
            gpu.device.uuid: _DriverThread(f"nvml-{gpu.device.uuid}") for gpu in self._gpus if not gpu.lost
        }
        self._cpu = CpuDevice()

    def inventory(self) -> tuple[Device, ...]:
        """Returns the GPUs and MIG devices, in the driver's order, and last the CPU."""
        return (*(gpu.device for gpu in self._gpus), self._cpu.device)

    async def read(self) -> tuple[DeviceReading, ...]:
        gpus = await asyncio.gather(*(self._read(gpu) for gpu in self._gpus))
        return (*gpus, DeviceReading(self._cpu.sample()))

    async def _read(self, gpu: Gpu) -> DeviceReading:
        nothing = DeviceSample(gpu.device.uuid)
        if gpu.lost:
            return DeviceReading(nothing, Lost(gpu.lost))
        found = await self._call(gpu, gpu.read)
        return DeviceReading(nothing, Missed()) if found is None else found

    async def memory_used(self, uuid: str) -> int | None:
        return await self._of(uuid, lambda gpu: gpu.memory_used())

    async def memory_of_processes(self, uuid: str, pids: Collection[int]) -> int | None:
        used_bytes = await self._of(uuid, lambda gpu: gpu.memory_by_process())
        return None if used_bytes is None else sum(used_bytes.get(pid, 0) for pid in pids)

    async def _of(self, uuid: str, call: Callable[[Gpu], T | None]) -> T | None:
        gpu = next((gpu for gpu in self._gpus if gpu.device.uuid == uuid and not gpu.lost), None)
        return None if gpu is None else await self._call(gpu, lambda: call(gpu))

    def facts(self, *, host_pids: bool) -> dict[str, str]:
        """Returns facts about the driver. `host_pids`: this process sees the processes of the whole host,
        which is needed to know how much memory each process on a GPU holds. Raises DevicesUnknown."""
        if not self._gpus:
            return {}
        from stoker.agent.host.devices.driver import facts

        gpus = [gpu for gpu in self._gpus if not gpu.lost]
        return _in_time(lambda: facts(gpus, host_pids=host_pids), self._deadline_s)

    async def _call(self, gpu: Gpu, call: Callable[[], T]) -> T | None:
        """Returns None if the call does not return in time; a later result is dropped."""
        thread = self._threads[gpu.device.uuid]
        if thread.stuck:
            return None
        answer = thread.run(call)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            thread.give_up(answer)
            return None

    def listen(self, on_xid: Callable[[str, int], None]) -> None:
        """Starts daemon threads, which end with the process or once the loop is closed."""
        gpus = [gpu for gpu in self._gpus if not gpu.lost]
        if not gpus:
            return
        from stoker.agent.host.devices import xid_listener

        loop = asyncio.get_running_loop()

        def report(uuid: str, xid: int) -> None:
            loop.call_soon_threadsafe(on_xid, uuid, xid)

        for whole in {gpu.device.parent or gpu.device.uuid for gpu in gpus}:
            parts = {
                gpu.device.uuid: gpu.part for gpu in gpus if whole in (gpu.device.parent, gpu.device.uuid)
            }
            xid_listener.listen(whole, parts, report)


def _in_time(call: Callable[[], T], deadline_s: float) -> T:
    try:
        return _DriverThread("nvml-start").run(call).result(deadline_s)
    except TimeoutError:
        raise DevicesUnknown(f"the NVIDIA driver does not answer within {deadline_s:g} s") from None


def _find_gpus() -> list[Gpu]:
    """Returns nothing if there is no driver. Raises DevicesUnknown, and ModuleNotFoundError without NVML's
    bindings, on a host without a driver as well."""
    if find_spec("pynvml") is None:
        raise ModuleNotFoundError("there is no pynvml", name="pynvml")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # by this name NVML's bindings load it
    except OSError:
        return []
    from stoker.agent.host.devices.driver import find_gpus

    return find_gpus()
