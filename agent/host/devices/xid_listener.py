"""Listens for Xids: one thread for each GPU waits for the events of that GPU.

    registered ──> waits ──an event──> reported for the GPU, or for the parts that it names ──> waits
        |            '── an error ──> a pause, each longer than the last ──> waits
        '── the GPU has no events, or is lost: this is logged, and the thread ends

With a thread for each, a GPU without events does not affect the others, and the source of an event is known
without calling the driver, which reports nothing about a GPU that has just fallen off the bus.
`agent.host.devices.health` decides what an Xid means.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pynvml as nvml

log = logging.getLogger(__name__)

WAIT_MS = 5000
PAUSE_S, PAUSE_MOST_S = 5.0, 600.0

_NO_PART = 0xFFFFFFFF
_GONE = (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired)

Report: TypeAlias = Callable[[str, int], object]
"""Called with (device, Xid). Raises RuntimeError once the loop is closed."""


def listen(gpu: str, devices: Mapping[str, int | None], report: Report) -> None:
    """Starts a daemon thread that reports the Xids of a GPU, by the UUID of the whole GPU. `devices` are its
    parts that are in use, each with the number of its GPU instance, or the GPU itself with None."""
    threading.Thread(target=_listen, args=(gpu, devices, report), name=f"xids-{gpu}", daemon=True).start()


def _listen(gpu: str, devices: Mapping[str, int | None], report: Report) -> None:
    try:
        events = nvml.nvmlEventSetCreate()
        whole = nvml.nvmlDeviceGetHandleByUUID(gpu)
        nvml.nvmlDeviceRegisterEvents(whole, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError as error:
        log.warning("Xids of %s are not reported; its health depends on readings only: %s", gpu, error)
        return
    pause_s = PAUSE_S
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
            for device in _about(event, devices):
                report(device, int(event.eventData))
            pause_s = PAUSE_S
        except nvml.NVMLError_Timeout:
            continue
        except _GONE as error:
            log.error("Xids of %s are not reported any more: %s", gpu, error)
            return
        except nvml.NVMLError as error:
            log.error("waiting for Xids of %s failed, the next try is in %g s: %s", gpu, pause_s, error)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MOST_S)
        except RuntimeError:  # the loop is closed
            return


def _about(event: Any, devices: Mapping[str, int | None]) -> list[str]:
    """Returns the devices that an event is about: the part of a divided GPU that it names, or all."""
    named = event.gpuInstanceId
    return [device for device, part in devices.items() if part is None or named in (_NO_PART, part)]
