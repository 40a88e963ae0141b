"""The machine of one zygote: decides when it is started and ended, and whether workers are forked from it.

Pure: no clock, no process. `agent.workers.zygotes.zygotes` runs it. Each zygote serves one `ImportSet`: the
modules that an endpoint preloads, the environment that it declares (libraries read variables when they are
imported), and whether its workers have an accelerator. If workers have users of their own, a set also belongs
to one endpoint with its volume, because forked workers have the zygote's user and groups.

    Absent --needed--> Importing --ready--> Ready --no worker of the set for LINGER_S--> Absent
      ^                   |  | refused                 |
      |                   |  '-------> Refused         | died
      '--- back-off ------'-- died, or silent ---------'

- A worker that is to start while the zygote imports waits for it: that is faster than importing twice.
- A set whose imports cannot be forked safely is refused for good: its workers start in fresh interpreters.
- A zygote that dies is started again, each time later; meanwhile workers start in fresh interpreters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

IMPORT_S = 240.0
"""How long the imports may take: less than the time in which a worker must become ready."""

FORK_S = 15.0
"""How long a worker waits for a ready zygote's next spare."""

LINGER_S = 900.0
"""How long a zygote outlives the last worker of its set, for an endpoint that starts workers again."""

FIRST_S = 5.0
LONGEST_S = 600.0
HEALTHY_S = 60.0
FACTOR = 4

MARK_ROOM = 200
"""How many bytes a worker's name may have: the zygote reserves them in its environment."""

BRINGS_CODE = ("PYTHON", "LD_")
"""The prefixes of variables that may make an interpreter run the user's code at its start."""

HARMLESS = frozenset(
    {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8"}
)


class ImportSet(Struct, frozen=True):
    preload: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    accelerated: bool = False
    owner: str = ""


class Fresh(Struct, frozen=True):
    """The worker starts in a fresh interpreter; `why` is the reason."""

    why: str


def import_set(
    preload: tuple[str, ...],
    env: Mapping[str, str],
    *,
    accelerated: bool,
    owner: str = "",
    name: str = "",
) -> ImportSet | Fresh:
    """Returns the set that a worker belongs to. `owner` separates workers that may not share a user."""
    for variable in sorted(env):
        if variable.startswith(BRINGS_CODE) and variable not in HARMLESS:
            return Fresh(f"its endpoint declares {variable}, which may bring code of its own into a zygote")
    if len(name.encode()) > MARK_ROOM:
        return Fresh(f"its name is longer than {MARK_ROOM} bytes")
    return ImportSet(tuple(sorted(set(preload))), tuple(sorted(env.items())), accelerated, owner)


def unfit(names: Iterable[str], origins: Mapping[str, str], folder: str, own: Iterable[str]) -> str | None:
    """Returns why a handler of this folder may not be forked from a zygote that has imported `names`.

    `own` are the modules in the folder: a fresh worker would import them, but a forked worker would get a
    preloaded module of the same name.
    """
    for name, origin in sorted(origins.items()):
        if origin.startswith(folder.rstrip("/") + "/"):
            return f"{name} lies in the handler's folder {folder}: user code is not preloaded"
    if hidden := sorted(set(names) & set(own)):
        return f"{', '.join(hidden)} of the handler's folder would be hidden by what is preloaded"
    return None


# ---- states ------------------------------------------------------------------------------------


class Absent(Struct, frozen=True):
    not_before: float = 0.0
    why: str = ""


class Importing(Struct, frozen=True):
    deadline: float


class Ready(Struct, frozen=True):
    since: float


class Refused(Struct, frozen=True):
    why: str


class ZygoteState(Struct, frozen=True):
    """The state of the zygote for one set of libraries. `users` is the number of workers of the set that run
    or wait, forked or fresh; `failures` that of the failures in a row."""

    phase: Absent | Importing | Ready | Refused = Absent()
    users: int = 0
    idle_since: float = 0.0
    failures: int = 0


# ---- events ------------------------------------------------------------------------------------


class Needed(Struct, frozen=True):
    """A worker of the set is to be started."""

    at: float


class Left(Struct, frozen=True):
    """A worker of the set has ended."""

    at: float


class BecameReady(Struct, frozen=True):
    at: float


class WasRefused(Struct, frozen=True):
    at: float
    why: str


class Died(Struct, frozen=True):
    """The event that the zygote's process ended, or could not be started."""

    at: float
    why: str


class Silent(Struct, frozen=True):
    """A worker has waited FORK_S for a spare, although the zygote is ready."""

    at: float


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = Needed | Left | BecameReady | WasRefused | Died | Silent | Tick


# ---- commands ----------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    pass


class Drop(Struct, frozen=True):
    """The command to end the zygote's process, if there is one."""

    why: str


Command: TypeAlias = Start | Drop
Stepped: TypeAlias = tuple[ZygoteState, tuple[Command, ...]]


# ---- the machine -------------------------------------------------------------------------------


def step(state: ZygoteState, event: Event) -> Stepped:
    match event:
        case Needed(at):
            return _started(replace(state, users=state.users + 1), at)
        case Left(at):
            return replace(state, users=state.users - 1, idle_since=at), ()
        case BecameReady(at) if isinstance(state.phase, Importing):
            return replace(state, phase=Ready(at)), ()
        case WasRefused(_, why) if isinstance(state.phase, Importing):
            return replace(state, phase=Refused(why)), (Drop(why),)
        case Died(at, why) if isinstance(state.phase, Importing | Ready):
            return _failed(state, at, why), ()
        case Silent(at) if isinstance(state.phase, Ready):
            why = f"it forked nothing for {FORK_S:g} s"
            return _failed(state, at, why), (Drop(why),)
        case Tick(at):
            return _ticked(state, at)
        case _:
            return state, ()


def availability(state: ZygoteState) -> Importing | Ready | Fresh:
    """Returns whether a worker that is to start now waits, is forked, or starts in a fresh interpreter."""
    match state.phase:
        case Importing() | Ready():
            return state.phase
        case Refused(why):
            return Fresh(why)
        case Absent(_, why):
            return Fresh(f"its zygote is not there: {why}")
        case _:
            assert_never(state.phase)


def wake_at(state: ZygoteState) -> float | None:
    match state.phase:
        case Importing(deadline):
            return deadline
        case Ready() if state.users == 0:
            return state.idle_since + LINGER_S
        case Absent(not_before) if state.users > 0:
            return not_before
        case _:
            return None


def back_off(failures: int) -> float:
    """Returns 5, 20, 80 … seconds, at most LONGEST_S."""
    return min(FIRST_S * float(FACTOR) ** min(failures - 1, 16), LONGEST_S)


def _started(state: ZygoteState, at: float) -> Stepped:
    if isinstance(state.phase, Absent) and at >= state.phase.not_before and state.users > 0:
        return replace(state, phase=Importing(at + IMPORT_S)), (Start(),)
    return state, ()


def _failed(state: ZygoteState, at: float, why: str) -> ZygoteState:
    healthy = isinstance(state.phase, Ready) and at - state.phase.since >= HEALTHY_S
    failures = 1 if healthy else state.failures + 1
    return replace(state, phase=Absent(at + back_off(failures), why), failures=failures)


def _ticked(state: ZygoteState, at: float) -> Stepped:
    match state.phase:
        case Importing(deadline) if at >= deadline:
            why = f"its imports took more than {IMPORT_S:g} s"
            return _failed(state, at, why), (Drop(why),)
        case Ready() if state.users == 0 and at >= state.idle_since + LINGER_S:
            return replace(state, phase=Absent(at)), (Drop("no worker of its set is left"),)
        case Absent():
            return _started(state, at)
        case _:
            return state, ()
