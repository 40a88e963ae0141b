"""The words of the pod machine (`agent.pod`): what an engine tells, what happens, what is to be done.

Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stoker.wire.messages import PodSpec, PodState, PortMapping

Course = Literal["runs", "stopped", "ended", "released"]
"""Of a container when it was last dealt with: it was started; it was made, or told to stop; it ended by
itself and is left so; it did that, and was then wished to be EXITED, so the next wish to run starts it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What outlives the agent. `version` and `restarts` are those that the container was last started for."""

    version: int
    restarts: int
    course: Course


# ---- what the engine says -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Absent:
    pass


@dataclass(frozen=True, slots=True)
class Made:
    version: int


@dataclass(frozen=True, slots=True)
class Runs:
    version: int
    started_ms: int | None = None
    ports: tuple[PortMapping, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """`taken`: it ended before this life of its engine began."""

    version: int
    code: int
    why: str
    taken: bool = False
    log_tail: tuple[str, ...] = ()


Container: TypeAlias = Absent | Made | Runs | Ended


# ---- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wished:
    """None: nobody names it any more."""

    at: float
    spec: PodSpec | None


@dataclass(frozen=True, slots=True)
class Saw:
    at: float
    container: Container


@dataclass(frozen=True, slots=True)
class Done:
    """What was commanded. Of a signal: it was sent."""

    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The command, with the engine's sentence."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = Wished | Saw | Done | Failed | Tick


# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Answered by Saw."""


@dataclass(frozen=True, slots=True)
class Pull:
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The pull: nothing of it is to be heard any more."""


@dataclass(frozen=True, slots=True)
class Make:
    """The pod's own volume, unless it is there, and the container."""

    spec: PodSpec


@dataclass(frozen=True, slots=True)
class Start:
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class Signal:
    name: Literal["SIGTERM", "SIGKILL"]


@dataclass(frozen=True, slots=True)
class Remove:
    pass


@dataclass(frozen=True, slots=True)
class RemoveVolume:
    pass


@dataclass(frozen=True, slots=True)
class Keep:
    """On disk, before the next command is performed. None: it is to be forgotten."""

    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Report:
    state: PodState


Command: TypeAlias = Look | Pull | GiveUp | Make | Start | Signal | Remove | RemoveVolume | Keep | Report
