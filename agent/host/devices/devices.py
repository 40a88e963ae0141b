"""Reads the host's devices: GPUs through NVML if there is a driver, and the CPU.

Each GPU has a thread, which makes one driver call at a time, each with a deadline. A driver call that hangs
blocks one thread and the samples of that GPU, but not the agent. What the driver does not report is None.

    called --returned in time--> a reading of the device
       |----deadline passed----> missed, until the call returns: a stuck GPU is not called again meanwhile

`agent.host.devices.xid_listener` waits for Xids; `agent.host.devices.health` decides by readings and Xids
whether a device is healthy. A driver that fails is an error, and never counts as a host without GPUs: jobs
would run on the CPU.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pynvml as nvml

from stoker.agent.host.devices import xid_listener
from stoker.agent.host.devices.cpu_device import CpuDevice, host_memory
from stoker.agent.host.devices.health import Answered, DeviceReading, Lost, Missed
from stoker.wire.messages import Device, DeviceSample

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 2.0
START_DEADLINE_S = 30.0
"""The first call initialises the driver, which takes seconds if no persistence daemon runs."""

_GONE = {nvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost", nvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset"}
_NOT_REPORTED = {
    nvml.NVML_ERROR_NOT_SUPPORTED,
    nvml.NVML_ERROR_NO_PERMISSION,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_NO_DATA,
}


class DevicesUnknown(Exception):
    """There is a driver, but it does not list its devices. The message is for the operator."""


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


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU or a MIG device. `whole` is the handle of the whole GPU, `part` the number of a MIG device's
    instance. `lost`: why it could not be opened."""

    device: Device
    handle: Any
    whole: Any
    part: int | None = None
    lost: str = ""


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

    async def _read(self, gpu: _Gpu) -> DeviceReading:
        nothing = DeviceSample(gpu.device.uuid)
        if gpu.lost:
            return DeviceReading(nothing, Lost(gpu.lost))
        try:
            found = await self._call(gpu, partial(_read, gpu))
        except nvml.NVMLError as error:
            lost = _GONE.get(error.value)
            return DeviceReading(nothing, Missed(str(error)) if lost is None else Lost(lost))
        return DeviceReading(nothing, Missed()) if found is None else found

    async def memory_used(self, uuid: str) -> int | None:
        return await self._of(uuid, _memory_used)

    async def memory_of_processes(self, uuid: str, pids: Collection[int]) -> int | None:
        used_bytes = await self._of(uuid, _memory_by_process)
        return None if used_bytes is None else sum(used_bytes.get(pid, 0) for pid in pids)

    async def _of(self, uuid: str, call: Callable[[Any], T | None]) -> T | None:
        gpu = next((gpu for gpu in self._gpus if gpu.device.uuid == uuid and not gpu.lost), None)
        if gpu is None:
            return None
        try:
            return await self._call(gpu, partial(call, gpu.handle))
        except nvml.NVMLError:
            return None  # the next reading shows what is wrong

    def facts(self, *, host_pids: bool) -> dict[str, str]:
        """Returns facts about the driver. `host_pids`: this process sees the processes of the whole host,
        which is needed to know how much memory each process on a GPU holds. Raises DevicesUnknown."""
        if not self._gpus:
            return {}
        handles = [gpu.handle for gpu in self._gpus if not gpu.lost]
        return _in_time(lambda: {**_cuda(), "gpu_sharing": _sharing(handles, host_pids)}, self._deadline_s)

    async def _call(self, gpu: _Gpu, call: Callable[[], T]) -> T | None:
        """Returns None if the call does not return in time; a later result is dropped. Raises NVMLError."""
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
        loop = asyncio.get_running_loop()

        def report(uuid: str, xid: int) -> None:
            loop.call_soon_threadsafe(on_xid, uuid, xid)

        for whole in {gpu.device.parent or gpu.device.uuid for gpu in gpus}:
            parts = {
                gpu.device.uuid: gpu.part for gpu in gpus if whole in (gpu.device.parent, gpu.device.uuid)
            }
            xid_listener.listen(whole, parts, report)


def _cuda() -> dict[str, str]:
    """Returns the newest CUDA version of the driver, such as "12.8" (reported as 12080)."""
    version = _answer(nvml.nvmlSystemGetCudaDriverVersion)
    return {} if version is None else {"cuda": f"{version // 1000}.{version % 1000 // 10}"}


def _sharing(handles: list[Any], host_pids: bool) -> str:
    if not host_pids:
        return "no: its agent does not see the host's processes (a container of it needs --pid=host)"
    try:
        reported = all(_answer(_memory_by_process, handle) is not None for handle in handles)
    except nvml.NVMLError:  # a device is lost: the readings report it
        reported = False
    return "yes" if reported else "no: its driver does not report what each process holds"


def _memory_by_process(handle: Any) -> dict[int, int] | None:
    """Returns bytes by process id, or None if the driver does not report them for every process."""
    # Without _v3 an old driver does not make it raise an NVMLError.
    running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    if any(one.usedGpuMemory is None for one in running):
        return None
    return {int(one.pid): int(one.usedGpuMemory) for one in running}


def _in_time(call: Callable[[], T], deadline_s: float) -> T:
    try:
        return _DriverThread("nvml-start").run(call).result(deadline_s)
    except TimeoutError:
        raise DevicesUnknown(f"the NVIDIA driver does not answer within {deadline_s:g} s") from None
    except nvml.NVMLError as error:
        raise DevicesUnknown(f"the NVIDIA driver does not list its devices: {error}") from None


def _find_gpus() -> list[_Gpu]:
    """Returns nothing if there is no driver."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    driver = _answer(nvml.nvmlSystemGetDriverVersion)
    found: list[_Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found += _gpu_or_its_parts(index, nvml.nvmlDeviceGetHandleByIndex(index), driver)
        except nvml.NVMLError as error:
            log.error("GPU %d cannot be used: %s", index, error)
            found.append(_unopened(index, error))
    if all(gpu.handle is None for gpu in found):
        raise DevicesUnknown(_none_of(found))
    return found


def _none_of(found: list[_Gpu]) -> str:
    if not found:
        return "the NVIDIA driver is here and shows no GPU; a container is given its GPUs when it is started"
    return f"no GPU can be used: {'; '.join(f'{gpu.device.uuid}: {gpu.lost}' for gpu in found)}"


def _unopened(index: int, error: nvml.NVMLError) -> _Gpu:
    """Returns a GPU that could not be opened, named by its index, since its uuid is unknown."""
    device = Device(f"GPU-at-{index}", "gpu", "GPU", index)
    return _Gpu(device, None, None, lost=f"it could not be opened: {error}")


def _gpu_or_its_parts(index: int, handle: Any, driver: str | None) -> list[_Gpu]:
    """Returns the GPU, or its MIG devices if it is divided, since nothing can run on the whole then."""
    whole = _device(index, handle, "gpu", driver, None)
    mode = _answer(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return [_Gpu(whole, handle, handle)]
    parts = []
    for n in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _answer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, n)
        if part is not None:  # not every instance of a divided GPU need exist
            device = _device(index, part, "mig", driver, whole.uuid)
            parts.append(_Gpu(device, part, handle, _answer(nvml.nvmlDeviceGetGpuInstanceId, part)))
    return parts or [
        _Gpu(whole, handle, handle, lost="it is to be divided (MIG), and no part of it was made")
    ]


def _device(index: int, handle: Any, kind: str, driver: str | None, parent: str | None) -> Device:
    total = _memory_total(handle)
    unified = total == 0 and kind == "gpu"
    return Device(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        kind=kind,
        name=_text(_answer(nvml.nvmlDeviceGetName, handle) or "GPU"),
        index=index,
        parent=parent,
        memory_total=host_memory()[0] if unified else total or None,
        driver=None if driver is None else _text(driver),
        unified_memory=unified,
    )


def _memory_total(handle: Any) -> int | None:
    """Returns 0 for a GPU without memory of its own: the driver does not support the question there, or
    answers with none. None if it is unknown."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return 0 if error.value == nvml.NVML_ERROR_NOT_SUPPORTED else None


def _read(gpu: _Gpu) -> DeviceReading:
    """Raises NVMLError if the device is lost, or fails to report its memory."""
    handle = gpu.handle
    used = _memory_used(handle)
    if gpu.device.unified_memory:
        used = host_memory()[1]
    rates = _answer(nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _answer(nvml.nvmlDeviceGetPowerUsage, handle)
    kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
    sample = DeviceSample(
        uuid=gpu.device.uuid,
        memory_used=used,
        utilisation=None if rates is None else int(rates.gpu),
        temperature=_answer(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power=None if milliwatts is None else milliwatts / 1000,
        ecc_uncorrected=_answer(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter),
    )
    return DeviceReading(sample, _health(gpu.whole, sample.ecc_uncorrected))


def _memory_used(handle: Any) -> int | None:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.used) if memory.total else None
    except nvml.NVMLError as error:
        if error.value in _NOT_REPORTED:
            return None
        raise


def _health(whole: Any, uncorrected: int | None) -> Answered:
    """Reads pending remaps and the recovery action of the whole GPU, which are not reported for its parts.
    Rows are remapped from Ampere on; earlier GPUs retire pages."""
    remapped = _answer(nvml.nvmlDeviceGetRemappedRows, whole)
    pages = _answer(nvml.nvmlDeviceGetRetiredPagesPendingStatus, whole) if remapped is None else None
    return Answered(
        uncorrected=uncorrected,
        remap_pending=bool(remapped[2]) if remapped is not None else None if pages is None else bool(pages),
        remap_failed=None if remapped is None else bool(remapped[3]),
        action=_action(whole),
    )


def _action(handle: Any) -> int | None:
    values = _answer(nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _answer(call: Callable[..., T], *about: Any) -> T | None:
    """Returns the driver's answer, or None if it has none (not supported, not permitted, …). Raises NVMLError
    if the device is lost."""
    try:
        return call(*about)
    except nvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
