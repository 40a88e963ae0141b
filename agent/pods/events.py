"""The events and commands of the pod machine (`agent.pods.pod_machine`), and the states of a container. Pure
data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stoker.wire.messages import PodSpec, PodState, PortMapping

Course = Literal["runs", "stopped", "ended", "released"]
"""What the agent last did with a container, or found of it.

runs      it was started
stopped   it was created, or stopped
ended     it ended by itself, and is not started again
released  it ended by itself, and EXITED was then requested: the next request to run starts it
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """The record that is saved of a pod. `version` and `restarts` are those that its container was last
    started for."""

    version: int
    restarts: int
    course: Course


# ---- the container, as the engine reports it ------------------------------------------------------


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
    """The event that a pod's container has ended. `taken`: it ended because its engine stopped, before the
    engine's present start."""

    version: int
    code: int
    why: str
    taken: bool = False
    log_tail: tuple[str, ...] = ()


Container: TypeAlias = Absent | Made | Runs | Ended


# ---- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wished:
    """Control's specification of the pod. None: control does not name the pod any more."""

    at: float
    spec: PodSpec | None


@dataclass(frozen=True, slots=True)
class Seen:
    """The container's state, as the engine reported it."""

    at: float
    container: Container


@dataclass(frozen=True, slots=True)
class Done:
    """The command was carried out."""

    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The command failed; `why` is the engine's message."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = Wished | Seen | Done | Failed | Tick


# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Requests the container's state from the engine. Seen follows."""


@dataclass(frozen=True, slots=True)
class Pull:
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Cancel the pull. No event of it follows."""


@dataclass(frozen=True, slots=True)
class Make:
    """Create the container, and the pod's own volume if it does not exist."""

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
class SaveMark:
    """Save the mark on disk, before the next command is carried out. None: delete it."""

    mark: Mark | None


@dataclass(frozen=True, slots=True)
class ReportPod:
    state: PodState


Command: TypeAlias = (
    Look | Pull | GiveUp | Make | Start | Signal | Remove | RemoveVolume | SaveMark | ReportPod
)
