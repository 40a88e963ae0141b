"""The events and commands of the pod machine (`agent.pods.pod_machine`), and the states of a container. Pure
data."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from stoker.wire.messages import PodSpec, PodState, PortMapping

Course = Literal["runs", "stopped", "ended", "released"]
"""What the agent last did with a container, or found of it.

runs      it was started
stopped   it was created, or stopped
ended     it ended by itself, and is not started again
released  it ended by itself, and EXITED was then requested: the next request to run starts it
"""


class Mark(Struct, frozen=True):
    """The record that is saved of a pod. `version` and `restarts` are those that its container was last
    started for."""

    version: int
    restarts: int
    course: Course


# ---- the container, as the engine reports it ------------------------------------------------------


class Absent(Struct, frozen=True):
    pass


class Made(Struct, frozen=True):
    version: int


class Runs(Struct, frozen=True):
    version: int
    started_ms: int | None = None
    ports: tuple[PortMapping, ...] = ()


class Ended(Struct, frozen=True):
    """The event that a pod's container has ended. `taken`: it ended because its engine stopped, before the
    engine's present start."""

    version: int
    code: int
    why: str
    taken: bool = False
    log_tail: tuple[str, ...] = ()


Container: TypeAlias = Absent | Made | Runs | Ended


# ---- events -------------------------------------------------------------------------------------


class Wished(Struct, frozen=True):
    """Control's specification of the pod. None: control does not name the pod any more."""

    at: float
    spec: PodSpec | None


class Seen(Struct, frozen=True):
    """The container's state, as the engine reported it."""

    at: float
    container: Container


class Done(Struct, frozen=True):
    """The command was carried out."""

    at: float


class Failed(Struct, frozen=True):
    """The command failed; `why` is the engine's message."""

    at: float
    why: str


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = Wished | Seen | Done | Failed | Tick


# ---- commands -----------------------------------------------------------------------------------


class Look(Struct, frozen=True):
    """Requests the container's state from the engine. Seen follows."""


class Pull(Struct, frozen=True):
    spec: PodSpec


class GiveUp(Struct, frozen=True):
    """Cancel the pull. No event of it follows."""


class Make(Struct, frozen=True):
    """Create the container, and the pod's own volume if it does not exist."""

    spec: PodSpec


class Start(Struct, frozen=True):
    spec: PodSpec


class Signal(Struct, frozen=True):
    name: Literal["SIGTERM", "SIGKILL"]


class Remove(Struct, frozen=True):
    pass


class RemoveVolume(Struct, frozen=True):
    pass


class SaveMark(Struct, frozen=True):
    """Save the mark on disk, before the next command is carried out. None: delete it."""

    mark: Mark | None


class ReportPod(Struct, frozen=True):
    state: PodState


Command: TypeAlias = (
    Look | Pull | GiveUp | Make | Start | Signal | Remove | RemoveVolume | SaveMark | ReportPod
)
