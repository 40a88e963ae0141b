"""The host's devices: through NVML where there is a driver, else the processor as one device.

Every question about a GPU runs in a thread of that GPU's own, one after the other, with a deadline: a driver
call that hangs costs the samples of that GPU and one thread, not the agent. What the driver does not tell is
None.

    asked --answered in time--> what it measured, and what it says of the device's health
      |----deadline passed----> missed, until the call returns: a stuck GPU is not asked again meanwhile

Xids are waited for by `agent.xids`. What all this means is `agent.device_health`. A driver that is there and
fails is an error, never a host without GPUs: jobs would run on the processor.
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

from stoker.agent import xids
from stoker.agent.device_health import Answered, Look, Lost, Missed
from stoker.agent.processor import Processor
from stoker.wire.messages import Device, DeviceSample

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 2.0
START_DEADLINE_S = 30.0
"""The first call wakes the driver, which takes seconds where no persistence daemon runs."""

_GONE = {nvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost", nvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset"}
_NOT_TOLD = {
    nvml.NVML_ERROR_NOT_SUPPORTED,
    nvml.NVML_ERROR_NO_PERMISSION,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_NO_DATA,
}


class DevicesUnknown(Exception):
    """The driver is there and does not tell its devices; the text is a sentence for the operator."""


class _Asker:
    """A daemon thread that runs one question at a time. It cannot be stopped, only left alone: a thread
    inside a driver call ends with the process, which it does not hold up."""

    def __init__(self, name: str) -> None:
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._late: Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def stuck(self) -> bool:
        """Whether the driver is still busy with a question that was given up."""
        return self._late is not None and not self._late.done()

    def ask(self, question: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._questions.put((question, answer))
        return answer

    def give_up(self, answer: Future[Any]) -> None:
        """Its time is over. One that had not had its turn yet is never asked."""
        if not answer.cancel():
            self._late = answer

    def _run(self) -> None:
        while True:
            question, answer = self._questions.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """Of a MIG device, `whole` is the handle of its GPU, and `part` the number of its instance. `lost`: why
    it could not even be opened."""

    device: Device
    handle: Any
    whole: Any
    part: int | None = None
    lost: str = ""


class NvmlSampler:
    """`inventory` is what was there at the start, with GPUs that the driver counts and cannot open.
    Raises DevicesUnknown."""

    def __init__(self, deadline_s: float = DEADLINE_S, start_deadline_s: float = START_DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._gpus = _in_time(_find_gpus, start_deadline_s)
        self._askers = {
            gpu.device.uuid: _Asker(f"nvml-{gpu.device.uuid}") for gpu in self._gpus if not gpu.lost
        }
        self._processor = None if self._gpus else Processor()

    def inventory(self) -> tuple[Device, ...]:
        return (self._processor.device,) if self._processor else tuple(gpu.device for gpu in self._gpus)

    async def look(self) -> tuple[Look, ...]:
        if self._processor is not None:
            return (Look(self._processor.sample()),)
        return tuple(await asyncio.gather(*(self._look(gpu) for gpu in self._gpus)))

    async def _look(self, gpu: _Gpu) -> Look:
        nothing = DeviceSample(gpu.device.uuid)
        if gpu.lost:
            return Look(nothing, Lost(gpu.lost))
        try:
            found = await self._ask(gpu, partial(_look, gpu))
        except nvml.NVMLError as error:
            lost = _GONE.get(error.value)
            return Look(nothing, Missed(str(error)) if lost is None else Lost(lost))
        return Look(nothing, Missed()) if found is None else found

    async def memory_used(self, uuid: str) -> int | None:
        return await self._of(uuid, _memory_used)

    async def memory_held(self, uuid: str, pids: Collection[int]) -> int | None:
        held = await self._of(uuid, _held_by_process)
        return None if held is None else sum(held.get(pid, 0) for pid in pids)

    async def _of(self, uuid: str, question: Callable[[Any], T | None]) -> T | None:
        gpu = next((gpu for gpu in self._gpus if gpu.device.uuid == uuid and not gpu.lost), None)
        if gpu is None:
            return None
        try:
            return await self._ask(gpu, partial(question, gpu.handle))
        except nvml.NVMLError:
            return None  # the next look says what is wrong with it

    def facts(self, *, host_pids: bool) -> dict[str, str]:
        """What the driver tells of the host. `host_pids`: this process sees those of the whole host, without
        which nobody can say what each process on a GPU holds. Raises DevicesUnknown."""
        if self._processor is not None:
            return {}
        handles = [gpu.handle for gpu in self._gpus if not gpu.lost]
        return _in_time(lambda: {**_cuda(), "gpu_sharing": _sharing(handles, host_pids)}, self._deadline_s)

    async def _ask(self, gpu: _Gpu, question: Callable[[], T]) -> T | None:
        """None when it is not answered in time. Raises NVMLError. An answer that comes later is nobody's."""
        asker = self._askers[gpu.device.uuid]
        if asker.stuck:
            return None
        answer = asker.ask(question)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            asker.give_up(answer)
            return None

    def listen(self, hear: Callable[[str, int], None]) -> None:
        """Its threads end with the process, as an asker's does; or with the loop that they call."""
        gpus = [gpu for gpu in self._gpus if not gpu.lost]
        loop = asyncio.get_running_loop()

        def tell(uuid: str, xid: int) -> None:
            loop.call_soon_threadsafe(hear, uuid, xid)

        for whole in {gpu.device.parent or gpu.device.uuid for gpu in gpus}:
            parts = {
                gpu.device.uuid: gpu.part for gpu in gpus if whole in (gpu.device.parent, gpu.device.uuid)
            }
            xids.listen(whole, parts, tell)


def _cuda() -> dict[str, str]:
    """The newest CUDA that the driver runs, as "12.8": it says 12080."""
    told = _told(nvml.nvmlSystemGetCudaDriverVersion)
    return {} if told is None else {"cuda": f"{told // 1000}.{told % 1000 // 10}"}


def _sharing(handles: list[Any], host_pids: bool) -> str:
    if not host_pids:
        return "no: its agent does not see the host's processes (a container of it needs --pid=host)"
    try:
        seen = all(_told(_held_by_process, handle) is not None for handle in handles)
    except nvml.NVMLError:  # a device is gone: the looks say so
        seen = False
    return "yes" if seen else "no: its driver does not tell what each process holds"


def _held_by_process(handle: Any) -> dict[int, int] | None:
    """Bytes by process id; None where the driver names a process and not what it holds."""
    # Named without its version, it does not fail with an NVMLError where the driver is an old one.
    running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    if any(one.usedGpuMemory is None for one in running):
        return None
    return {int(one.pid): int(one.usedGpuMemory) for one in running}


def _in_time(question: Callable[[], T], deadline_s: float) -> T:
    try:
        return _Asker("nvml-start").ask(question).result(deadline_s)
    except TimeoutError:
        raise DevicesUnknown(f"the NVIDIA driver does not answer within {deadline_s:g} s") from None
    except nvml.NVMLError as error:
        raise DevicesUnknown(f"the NVIDIA driver does not tell its devices: {error}") from None


def _find_gpus() -> list[_Gpu]:
    """Nothing where there is no driver."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    driver = _told(nvml.nvmlSystemGetDriverVersion)
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
    """Its own name is not known: its place on the host is all that can be told."""
    device = Device(f"GPU-at-{index}", "gpu", "GPU", index)
    return _Gpu(device, None, None, lost=f"it could not be opened: {error}")


def _gpu_or_its_parts(index: int, handle: Any, driver: str | None) -> list[_Gpu]:
    """The GPU; or its MIG devices where it is divided, for then nothing runs on the whole."""
    whole = _device(index, handle, "gpu", driver, None)
    mode = _told(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return [_Gpu(whole, handle, handle)]
    parts = []
    for n in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _told(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, n)
        if part is not None:  # the places of a divided GPU need not all be taken
            device = _device(index, part, "mig", driver, whole.uuid)
            parts.append(_Gpu(device, part, handle, _told(nvml.nvmlDeviceGetGpuInstanceId, part)))
    return parts or [
        _Gpu(whole, handle, handle, lost="it is to be divided (MIG), and no part of it was made")
    ]


def _device(index: int, handle: Any, kind: str, driver: str | None, parent: str | None) -> Device:
    memory = _told(nvml.nvmlDeviceGetMemoryInfo, handle)
    return Device(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        kind=kind,
        name=_text(_told(nvml.nvmlDeviceGetName, handle) or "GPU"),
        index=index,
        parent=parent,
        memory_total=None if memory is None else int(memory.total),
        driver=None if driver is None else _text(driver),
    )


def _look(gpu: _Gpu) -> Look:
    """Raises NVMLError where the device is gone, or does not tell its memory for a reason of its own."""
    handle = gpu.handle
    used = _memory_used(handle)
    rates = _told(nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _told(nvml.nvmlDeviceGetPowerUsage, handle)
    kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
    sample = DeviceSample(
        uuid=gpu.device.uuid,
        memory_used=used,
        utilisation=None if rates is None else int(rates.gpu),
        temperature=_told(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power=None if milliwatts is None else milliwatts / 1000,
        ecc_uncorrected=_told(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter),
    )
    return Look(sample, _health(gpu.whole, sample.ecc_uncorrected))


def _memory_used(handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except nvml.NVMLError as error:
        if error.value in _NOT_TOLD:
            return None
        raise


def _health(whole: Any, uncorrected: int | None) -> Answered:
    """What waits for a reset, and what the driver wants done, is told of a whole GPU only, not of its parts.
    Rows are remapped from Ampere on; before, pages were retired."""
    remapped = _told(nvml.nvmlDeviceGetRemappedRows, whole)
    pages = _told(nvml.nvmlDeviceGetRetiredPagesPendingStatus, whole) if remapped is None else None
    return Answered(
        uncorrected=uncorrected,
        remap_pending=bool(remapped[2]) if remapped is not None else None if pages is None else bool(pages),
        remap_failed=None if remapped is None else bool(remapped[3]),
        action=_action(whole),
    )


def _action(handle: Any) -> int | None:
    values = _told(nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _told(question: Callable[..., T], *about: Any) -> T | None:
    """The driver's answer, or None where it has none (not supported, not permitted, …).
    Raises NVMLError where the device is gone."""
    try:
        return question(*about)
    except nvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
