"""The calls to NVIDIA's driver, by NVML's bindings. What the driver does not report is None.

`agent.host.devices.devices` makes them in threads, with deadlines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pynvml as nvml
from msgspec import Struct

from stoker.agent.host.devices.cpu_device import host_memory
from stoker.agent.host.devices.health import Answered, DeviceReading, Lost, Missed
from stoker.agent.host.devices.interfaces import DevicesUnknown
from stoker.wire.messages import Device, DeviceSample

log = logging.getLogger(__name__)

T = TypeVar("T")

_GONE = {nvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost", nvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset"}
_NOT_REPORTED = {
    nvml.NVML_ERROR_NOT_SUPPORTED,
    nvml.NVML_ERROR_NO_PERMISSION,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_NO_DATA,
}


class Gpu(Struct, frozen=True):
    """A GPU or a MIG device. `whole` is the handle of the whole GPU, `part` the number of a MIG device's
    instance. `lost`: why it could not be opened."""

    device: Device
    handle: Any
    whole: Any
    part: int | None = None
    lost: str = ""

    def read(self) -> DeviceReading:
        try:
            return _read(self)
        except nvml.NVMLError as error:
            lost = _GONE.get(error.value)
            seen = Missed(str(error)) if lost is None else Lost(lost)
            return DeviceReading(DeviceSample(self.device.uuid), seen)

    def memory_used(self) -> int | None:
        try:
            return _memory_used(self.handle)
        except nvml.NVMLError:
            return None  # the next reading shows what is wrong

    def memory_by_process(self) -> dict[int, int] | None:
        """Returns bytes by process id, or None if the driver does not report them for every process."""
        try:
            return _memory_by_process(self.handle)
        except nvml.NVMLError:
            return None  # the next reading shows what is wrong


def find_gpus() -> list[Gpu]:
    """Returns nothing if there is no driver. Raises DevicesUnknown."""
    with _listed():
        return _find_gpus()


def facts(gpus: Sequence[Gpu], *, host_pids: bool) -> dict[str, str]:
    """Returns facts about the driver: see `NvmlSampler.facts`. Raises DevicesUnknown."""
    with _listed():
        return {**_cuda(), "gpu_sharing": _sharing([gpu.handle for gpu in gpus], host_pids)}


@contextmanager
def _listed() -> Iterator[None]:
    try:
        yield
    except nvml.NVMLError as error:
        raise DevicesUnknown(f"the NVIDIA driver does not list its devices: {error}") from None


def _find_gpus() -> list[Gpu]:
    """Returns nothing if there is no driver."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    driver = _answer(nvml.nvmlSystemGetDriverVersion)
    found: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found += _gpu_or_its_parts(index, nvml.nvmlDeviceGetHandleByIndex(index), driver)
        except nvml.NVMLError as error:
            log.error("GPU %d cannot be used: %s", index, error)
            found.append(_unopened(index, error))
    if all(gpu.handle is None for gpu in found):
        raise DevicesUnknown(_none_of(found))
    return found


def _none_of(found: list[Gpu]) -> str:
    if not found:
        return "the NVIDIA driver is here and shows no GPU; a container is given its GPUs when it is started"
    return f"no GPU can be used: {'; '.join(f'{gpu.device.uuid}: {gpu.lost}' for gpu in found)}"


def _unopened(index: int, error: nvml.NVMLError) -> Gpu:
    """Returns a GPU that could not be opened, named by its index, since its uuid is unknown."""
    device = Device(f"GPU-at-{index}", "gpu", "GPU", index)
    return Gpu(device, None, None, lost=f"it could not be opened: {error}")


def _gpu_or_its_parts(index: int, handle: Any, driver: str | None) -> list[Gpu]:
    """Returns the GPU, or its MIG devices if it is divided, since nothing can run on the whole then."""
    whole = _device(index, handle, "gpu", driver, None)
    mode = _answer(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return [Gpu(whole, handle, handle)]
    parts = []
    for n in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _answer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, n)
        if part is not None:  # not every instance of a divided GPU need exist
            device = _device(index, part, "mig", driver, whole.uuid)
            parts.append(Gpu(device, part, handle, _answer(nvml.nvmlDeviceGetGpuInstanceId, part)))
    return parts or [Gpu(whole, handle, handle, lost="it is to be divided (MIG), and no part of it was made")]


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


def _memory_by_process(handle: Any) -> dict[int, int] | None:
    """Returns bytes by process id, or None if the driver does not report them for every process."""
    # Without _v3 an old driver does not make it raise an NVMLError.
    running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    if any(one.usedGpuMemory is None for one in running):
        return None
    return {int(one.pid): int(one.usedGpuMemory) for one in running}


def _read(gpu: Gpu) -> DeviceReading:
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
