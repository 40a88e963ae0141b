"""The stages of a worker's start, as its node and its process measured them. Pure.

weights    its node fetched and verified them, or found that they are here
process    the process was started; of a program also all else until it was ready
…          what the process reports of itself (`worker.setup.start_stages`)
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.wire.messages import StartStage


def start_stages(weights_s: float, process_s: float, own_ms: Mapping[str, int]) -> tuple[StartStage, ...]:
    """Returns the stages of a worker's start. `process_s`: from the start of the process until it was ready,
    of which it reports `own_ms`; no stage of them counts for longer than that. What took less than half a
    millisecond is left out."""
    whole_ms = round(process_s * 1000)
    took_ms = {"weights": round(weights_s * 1000), "process": max(whole_ms - sum(own_ms.values()), 0)}
    for name, milliseconds in own_ms.items():
        took_ms[name] = took_ms.get(name, 0) + min(milliseconds, whole_ms)
    return tuple(StartStage(name, milliseconds) for name, milliseconds in took_ms.items() if milliseconds)
