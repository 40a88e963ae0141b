"""For how long a worker or a pod holds its devices, and in which state: spans of time, priced by control.

Pure. A meter is of one worker or pod, over all its processes; an event tells what happened and when.

    Began ──> starting ──Ready──> idle <──Jobs──> running          a pod: Began ──> running
                 └───────────────── Ended ──────────┘──> (nothing is measured)

- Spans of one owner follow each other without a gap while its process lives, and never overlap.
- What is open is cut after a minute and at each full hour, and at a change of state once it is five seconds
  long. A window of many short jobs is told as one span for each state, laid end to end: their lengths are
  exact, their order within the window is not. So a worker tells little, however short its jobs are.
- A span's place is the wall clock's when the process began; from there a clock that never jumps counts. Each
  end is rounded to a millisecond once, so that lengths add up.
- What was not cut when the agent is killed is never told: at most a minute that nobody pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from stoker.wire.messages import Usage

LONGEST_MS = 60_000
SHORTEST_MS = 5_000
HOUR_MS = 3_600_000

STATES = ("starting", "running", "idle")


@dataclass(frozen=True, slots=True)
class Meter:
    """Times in milliseconds since the epoch. `state` is None while no process lives; `spent` is what the open
    window holds of each of STATES before `since`."""

    owner: str
    boot: str
    kind: str
    endpoint: str = ""
    version: int = 0
    devices: tuple[str, ...] = ()
    n: int = 1
    state: str | None = None
    clock: float = 0.0  # what the steady clock said at `place`
    place: int = 0
    window: int = 0
    since: int = 0
    spent: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Began:
    """A process was started. `wall_ms`: what the wall clock says."""

    at: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Ready:
    at: float


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many it has now."""

    at: float
    count: int


@dataclass(frozen=True, slots=True)
class Ended:
    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = Began | Ready | Jobs | Ended | Tick


def step(meter: Meter, event: Event) -> tuple[Meter, tuple[Usage, ...]]:
    """The meter from now on, and the spans that are over."""
    if isinstance(event, Began):
        return _begin(meter, event), ()
    if meter.state is None:
        return meter, ()
    now = _place(meter, event.at)
    match event:
        case Ready():
            return _change(meter, "idle", now)
        case Jobs(count=count):
            return (meter, ()) if meter.state == "starting" else _change(meter, _busy(count), now)
        case Ended():
            ended, spans = _cut(meter, now)
            return replace(ended, state=None), spans
        case Tick():
            return _cut(meter, now) if now >= _due(meter) else (meter, ())


def wake_at(meter: Meter) -> float | None:
    """When the open window must be cut, by the steady clock."""
    return None if meter.state is None else meter.clock + (_due(meter) - meter.place) / 1000


def _begin(meter: Meter, event: Began) -> Meter:
    """A wall clock that went back does not take this process into the time of the one before."""
    place = max(event.wall_ms, meter.window)
    state = "running" if meter.kind == "pod" else "starting"
    return replace(
        meter, state=state, clock=event.at, place=place, window=place, since=place, spent=(0, 0, 0)
    )


def _place(meter: Meter, at: float) -> int:
    return max(meter.place + round((at - meter.clock) * 1000), meter.since)


def _due(meter: Meter) -> int:
    return min(meter.window + LONGEST_MS, meter.window // HOUR_MS * HOUR_MS + HOUR_MS)


def _busy(count: int) -> str:
    return "running" if count else "idle"


def _change(meter: Meter, state: str, now: int) -> tuple[Meter, tuple[Usage, ...]]:
    if state == meter.state:
        return meter, ()
    if now - meter.window >= SHORTEST_MS:
        cut, spans = _cut(meter, now)
        return replace(cut, state=state), spans
    return replace(meter, spent=_spent(meter, now), since=now, state=state), ()


def _spent(meter: Meter, now: int) -> tuple[int, int, int]:
    starting, running, idle = (
        spent + (now - meter.since if state == meter.state else 0)
        for state, spent in zip(STATES, meter.spent, strict=True)
    )
    return starting, running, idle


def _cut(meter: Meter, now: int) -> tuple[Meter, tuple[Usage, ...]]:
    """Tells the window up to now, and opens the next."""
    spans: list[Usage] = []
    began = meter.window
    for state, length in zip(STATES, _spent(meter, now), strict=True):
        for ended in _ends(began, began + length):
            spans.append(_span(meter, meter.n + len(spans), state, began, ended))
            began = ended
    return replace(meter, n=meter.n + len(spans), window=now, since=now, spent=(0, 0, 0)), tuple(spans)


def _ends(began: int, ended: int) -> list[int]:
    """Where this stretch is cut: at full hours, and where it is over; nowhere if it is empty."""
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
