"""Measures how long a worker or a pod holds its devices, and in which state, as spans of time.

Pure. A meter is of one worker or pod, over all its processes. Control prices the spans.

    Began ──> starting ──Ready──> idle <──Jobs──> running          a pod: Began ──> running
                 └───────────────── Ended ──────────┘──> (nothing is measured)

- Spans of one owner follow each other without a gap while its process lives, and never overlap.
- The open window is cut after a minute and at each full hour, and at a change of state once it is five
  seconds long. A window of many short jobs is reported as one span for each state: their lengths are exact,
  their order within the window is not. So a worker reports little, however short its jobs are.
- The wall clock dates the start of the process; from there a steady clock counts. Each end is rounded to a
  millisecond once, so that lengths add up.
- A window that is open when the agent is killed is never reported: at most a minute is not billed.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stoker.wire.messages import Usage

LONGEST_MS = 60_000
SHORTEST_MS = 5_000
HOUR_MS = 3_600_000

STATES = ("starting", "running", "idle")


class Meter(Struct, frozen=True):
    """Times in milliseconds since the epoch. `state` is None while no process lives; `spent` is what the open
    window holds of each of STATES before `since`. `wake_at` is when that must be cut, in seconds of the
    steady clock."""

    owner: str
    boot: str
    kind: str
    endpoint: str = ""
    version: int = 0
    devices: tuple[str, ...] = ()
    n: int = 1
    state: str | None = None
    clock: float = 0.0  # the steady clock at `start_ms`
    start_ms: int = 0
    window: int = 0
    since: int = 0
    spent: tuple[int, ...] = (0, 0, 0)
    wake_at: float | None = None


class Began(Struct, frozen=True):
    """A process was started. `wall_ms` is the time of the wall clock."""

    at: float
    wall_ms: int


class Ready(Struct, frozen=True):
    at: float


class Jobs(Struct, frozen=True):
    """The event that the number of running jobs has changed."""

    at: float
    count: int


class Ended(Struct, frozen=True):
    at: float


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = Began | Ready | Jobs | Ended | Tick


def step(meter: Meter, event: Event) -> tuple[Meter, tuple[Usage, ...]]:
    """Returns the meter after `event`, and the spans that have ended."""
    if isinstance(event, Began):
        return _begin(meter, event), ()
    if meter.state is None:
        return meter, ()
    now = max(meter.start_ms + round((event.at - meter.clock) * 1000), meter.since)
    state: str | None = meter.state
    cut = False
    match event:
        case Ready():
            state = "idle"
        case Jobs(count=count) if state != "starting":
            state = "running" if count else "idle"
        case Ended():
            state, cut = None, True
        case Tick():
            cut = now >= _due(meter.window)
    changed = state != meter.state
    if not changed and not cut:
        return meter, ()
    spent = list(meter.spent)
    spent[STATES.index(meter.state)] += now - meter.since
    after = replace(meter, state=state, spent=tuple(spent), since=now)
    return _cut(after, now) if cut or now - meter.window >= SHORTEST_MS else (after, ())


def _begin(meter: Meter, event: Began) -> Meter:
    """Begins a process's time. A wall clock that went back does not make this process overlap the one
    before."""
    start_ms = max(event.wall_ms, meter.window)
    state = "running" if meter.kind == "pod" else "starting"
    return replace(
        meter,
        state=state,
        clock=event.at,
        start_ms=start_ms,
        window=start_ms,
        since=start_ms,
        spent=(0, 0, 0),
        wake_at=event.at + (_due(start_ms) - start_ms) / 1000,
    )


def _due(window: int) -> int:
    """Returns when a window that began then must be cut."""
    return min(window + LONGEST_MS, window // HOUR_MS * HOUR_MS + HOUR_MS)


def _cut(meter: Meter, now: int) -> tuple[Meter, tuple[Usage, ...]]:
    """Reports the window up to now, and opens the next unless its process has ended."""
    spans: list[Usage] = []
    began = meter.window
    for state, length in zip(STATES, meter.spent, strict=True):
        for ended in _ends(began, began + length):
            spans.append(_span(meter, meter.n + len(spans), state, began, ended))
            began = ended
    at = None if meter.state is None else meter.clock + (_due(now) - meter.start_ms) / 1000
    return replace(meter, n=meter.n + len(spans), window=now, spent=(0, 0, 0), wake_at=at), tuple(spans)


def _ends(began: int, ended: int) -> list[int]:
    """Returns where this stretch ends: at full hours, and at its own end; nowhere if it is empty."""
    hours = range(began // HOUR_MS * HOUR_MS + HOUR_MS, ended, HOUR_MS)
    return [*hours, ended] if ended > began else []


def _span(meter: Meter, n: int, state: str, began: int, ended: int) -> Usage:
    return Usage(
        owner=meter.owner,
        boot=meter.boot,
        n=n,
        kind=meter.kind,
        state=state,
        began_ms=began,
        ended_ms=ended,
        endpoint=meter.endpoint,
        version=meter.version,
        devices=meter.devices,
    )
