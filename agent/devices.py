"""The host's devices: through NVML where there is a driver, else the processor as one device.

Every look at a GPU runs in a thread of that GPU's own, with a deadline: a driver call that hangs costs the
samples of that GPU and one thread, not the agent. What the driver does not tell is None.

    asked --answered in time--> sample
      |----deadline passed----> nothing, until the call returns: a stuck GPU is not asked again meanwhile

A driver that is there and fails is an error, never a host without GPUs: jobs would run on the processor.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pynvml as nvml

from stoker.agent.processor import Processor
from stoker.wire.messages import Device, DeviceSample

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 2.0
START_DEADLINE_S = 30.0
"""The first call wakes the driver, which takes seconds where no persistence daemon runs."""


class DevicesUnknown(Exception):
    """The driver is there and does not tell its devices; the text is a sentence for the operator."""


class _Asker:
    """A daemon thread that runs one question at a time. It cannot be stopped, only left alone: a thread
    inside a driver call ends with the process, which it does not hold up."""

    def __init__(self, name: str) -> None:
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._open: Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def stuck(self) -> bool:
        return self._open is not None and not self._open.done()

    def ask(self, question: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._open = answer
        self._questions.put((question, answer))
        return answer

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
    device: Device
    handle: Any
    asker: _Asker


class NvmlSampler:
    """`inventory` is what was there at the start. Raises DevicesUnknown."""

    def __init__(self, deadline_s: float = DEADLINE_S, start_deadline_s: float = START_DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        found = _in_time(_find_gpus, start_deadline_s)
        self._gpus = [_Gpu(device, handle, _Asker(f"nvml-{device.uuid}")) for device, handle in found]
        self._processor = None if self._gpus else Processor()

    def inventory(self) -> tuple[Device, ...]:
        return (self._processor.device,) if self._processor else tuple(gpu.device for gpu in self._gpus)

    async def sample(self) -> tuple[DeviceSample, ...]:
        if self._processor is not None:
            return (self._processor.sample(),)
        answers = [gpu.asker.ask(partial(_sample, gpu)) for gpu in self._gpus if not gpu.asker.stuck]
        if answers:
            await _wait(answers, self._deadline_s)
        return tuple(
            answer.result()
            for answer in answers
            if answer.done() and not answer.cancelled() and not answer.exception()
        )


async def _wait(answers: list[Future[DeviceSample]], deadline_s: float) -> None:
    """Until all have come, or the deadline. Answers that come later are nobody's."""
    done, late = await asyncio.wait([asyncio.wrap_future(answer) for answer in answers], timeout=deadline_s)
    for one in late:
        one.cancel()
    for one in done:
        if error := one.exception():
            log.error("a GPU could not be looked at: %r", error)


def _in_time(question: Callable[[], T], deadline_s: float) -> T:
    try:
        return _Asker("nvml-start").ask(question).result(deadline_s)
    except TimeoutError:
        raise DevicesUnknown(f"the NVIDIA driver does not answer within {deadline_s:g} s") from None
    except nvml.NVMLError as error:
        raise DevicesUnknown(f"the NVIDIA driver does not tell its devices: {error}") from None


def _find_gpus() -> list[tuple[Device, Any]]:
    """Nothing where there is no driver."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    driver = _told(nvml.nvmlSystemGetDriverVersion)
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found += _gpu_or_its_parts(index, nvml.nvmlDeviceGetHandleByIndex(index), driver)
        except nvml.NVMLError as error:
            log.error("GPU %d is left out: %s", index, error)
    if not found:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_FOUND)
    return found


def _gpu_or_its_parts(index: int, handle: Any, driver: str | None) -> list[tuple[Device, Any]]:
    """The GPU; or its MIG devices where it is divided, for then nothing runs on the whole."""
    whole = _device(index, handle, "gpu", driver, None)
    mode = _told(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return [(whole, handle)]
    parts = []
    for n in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _told(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, n)
        if part is not None:  # the places of a divided GPU need not all be taken
            parts.append((_device(index, part, "mig", driver, whole.uuid), part))
    return parts


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


def _sample(gpu: _Gpu) -> DeviceSample:
    handle = gpu.handle
    memory = _told(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _told(nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _told(nvml.nvmlDeviceGetPowerUsage, handle)
    kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
    return DeviceSample(
        uuid=gpu.device.uuid,
        memory_used=None if memory is None else int(memory.used),
        utilisation=None if rates is None else int(rates.gpu),
        temperature=_told(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power=None if milliwatts is None else milliwatts / 1000,
        ecc_uncorrected=_told(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter),
    )


def _told(question: Callable[..., T], *about: Any) -> T | None:
    """The driver's answer, or None where it has none (not supported, not permitted, lost, …)."""
    try:
        return question(*about)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
