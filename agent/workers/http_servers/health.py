"""The health of an http worker, from what its server answers to probes.

Pure: no clock, no socket. The shell (`agent.workers.http_servers.worker`) performs the commands. That a
worker is not ready before its start deadline is noticed by `agent.workers.lifecycle.process_machine`, as for
every kind of worker.

    Initialising ──200──> Healthy ──any other answer, or none──> Unhealthy ──for `replace_s`──> Replaced
    (204: it loads)          ^──────────────200──────────────────────'
         '──404 or 405, for MISSING_S──> Replaced

- One probe is under way at a time. A worker is out of rotation with the first probe that is not 200.
- 204 means that the worker initialises, whenever it is answered.
- A server that is up and has no such path will not get one by waiting: its start fails, and says why.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

START_EVERY_S = 0.1
"""Between probes of a worker that is not ready yet: a caller may wait for it."""

EVERY_S = 1.0

MISSING_S = 30.0
"""How long a server may answer that there is no such path: some add their paths after they listen."""

_MISSING = (404, 405)


class Initialising(Struct, frozen=True):
    """The state of a worker that was not ready yet. `missing_since`: since when every probe found that the
    path does not exist."""

    next_at: float
    missing_since: float | None = None
    probing: bool = False


class Healthy(Struct, frozen=True):
    next_at: float
    probing: bool = False


class Unhealthy(Struct, frozen=True):
    since: float
    next_at: float
    why: str
    probing: bool = False


class Replaced(Struct, frozen=True):
    """The state of a worker whose end was ordered; nothing more follows."""


State: TypeAlias = Initialising | Healthy | Unhealthy | Replaced


class Probed(Struct, frozen=True):
    """The event that a probe has ended. `status` is None where there was no response; `why` is the reason."""

    at: float
    status: int | None
    why: str = ""
    path: str = "/ping"


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = Probed | Tick


class Probe(Struct, frozen=True):
    pass


class Announce(Struct, frozen=True):
    """The worker is in rotation from now on (`why` is empty), or out of it."""

    why: str = ""


class Replace(Struct, frozen=True):
    why: str


Command: TypeAlias = Probe | Announce | Replace
Stepped: TypeAlias = tuple[State, tuple[Command, ...]]


def begin(at: float) -> State:
    return Initialising(at)


def wake_at(state: State) -> float | None:
    """Returns when the machine needs a Tick; None while a probe is under way."""
    match state:
        case Replaced():
            return None
        case Initialising() | Healthy() | Unhealthy():
            return None if state.probing else state.next_at
        case _:
            assert_never(state)


def step(state: State, event: Event, replace_s: float) -> Stepped:
    """Returns the state after an event, and the commands. `replace_s`: a worker that is unhealthy for this
    time without a break is replaced."""
    match state, event:
        case Replaced(), _:
            return state, ()
        case _, Tick(at):
            if state.probing or at < state.next_at:
                return state, ()
            return replace(state, probing=True), (Probe(),)
        case _, Probed() if state.probing:
            return _probed(state, event, replace_s)
        case _:
            return state, ()


def _probed(state: Initialising | Healthy | Unhealthy, probed: Probed, replace_s: float) -> Stepped:
    at = probed.at
    if probed.status == 200:
        return Healthy(at + EVERY_S), () if isinstance(state, Healthy) else (Announce(),)
    why = _described(probed)
    match state:
        case Initialising(missing_since=since):
            return _initialising(probed, since)
        case Healthy():
            return Unhealthy(at, at + EVERY_S, why), (Announce(why),)
        case Unhealthy(since) if at - since >= replace_s:
            return Replaced(), (Replace(f"{why}, for {at - since:.0f} s"),)
        case Unhealthy(since):
            return Unhealthy(since, at + EVERY_S, why), ()
        case _:
            assert_never(state)


def _initialising(probed: Probed, since: float | None) -> Stepped:
    at = probed.at
    if probed.status not in _MISSING:
        return Initialising(at + START_EVERY_S), ()
    since = at if since is None else since
    if at - since < MISSING_S:
        return Initialising(at + START_EVERY_S, since), ()
    return Replaced(), (
        Replace(
            f"its server has no health check: it answers {probed.status} to GET {probed.path}, for"
            f" {at - since:.0f} s. It must answer 200 when it takes requests, and 204 while it loads; the"
            " variable HEALTH_CHECK_PATH of the endpoint names another path"
        ),
    )


def _described(probed: Probed) -> str:
    if probed.status == 204:
        return "it initialises again: its health check answers 204"
    if probed.status is None:
        return f"its health check fails: {probed.why}"
    return f"its health check answers {probed.status}"
