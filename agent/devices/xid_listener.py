"""Hears of Xids as they come: one thread for each GPU waits for that GPU's own.

    registered ──> waits ──an event──> told of the GPU, or of the parts that the event names ──> waits
        |            '── an error ──> a pause, each longer than the last ──> waits
        '── events are not to be had of this GPU, or it is gone: the log says so, and the thread ends

So a GPU that tells no events does not silence the others. And it is known whose event it is without asking
the driver, which answers nothing about a GPU that has just fallen off the bus. What an Xid means is for
`agent.device_health` to say.
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

Tell: TypeAlias = Callable[[str, int], object]
"""(device, Xid). Raises RuntimeError once nobody listens any more."""


def listen(gpu: str, devices: Mapping[str, int | None], tell: Tell) -> None:
    """`gpu` is the whole one's UUID; `devices` are what is worked with of it: its parts, each with the number
    of its GPU instance, or itself with None. The thread cannot be stopped, and holds up no process's end."""
    threading.Thread(target=_hear, args=(gpu, devices, tell), name=f"xids-{gpu}", daemon=True).start()


def _hear(gpu: str, devices: Mapping[str, int | None], tell: Tell) -> None:
    try:
        events = nvml.nvmlEventSetCreate()
        whole = nvml.nvmlDeviceGetHandleByUUID(gpu)
        nvml.nvmlDeviceRegisterEvents(whole, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError as error:
        log.warning("Xids of %s are not heard of, its health rests on looks alone: %s", gpu, error)
        return
    pause_s = PAUSE_S
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
            for device in _about(event, devices):
                tell(device, int(event.eventData))
            pause_s = PAUSE_S
        except nvml.NVMLError_Timeout:
            continue
        except _GONE as error:
            log.error("no more Xids of %s are heard of: %s", gpu, error)
            return
        except nvml.NVMLError as error:
            log.error("waiting for Xids of %s failed, the next try is in %g s: %s", gpu, pause_s, error)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MOST_S)
        except RuntimeError:  # the loop is closed
            return


def _about(event: Any, devices: Mapping[str, int | None]) -> list[str]:
    """An event of a divided GPU names the part that it is about, or none: then it is about all."""
    named = event.gpuInstanceId
    return [device for device, part in devices.items() if part is None or named in (_NO_PART, part)]
