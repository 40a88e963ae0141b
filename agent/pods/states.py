"""The states of the pod machine (`agent.pods.pod_machine`). Pure data."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from stoker.agent.pods.events import Command, Container, Mark
from stoker.wire.messages import PodSpec, PodState


class Looking(Struct, frozen=True):
    pass


class Pulling(Struct, frozen=True):
    pass


class Making(Struct, frozen=True):
    pass


class Starting(Struct, frozen=True):
    """The state of a pod that is being started. `mark` is that of the spec for which it is started: another
    spec may have arrived since."""

    mark: Mark


class Stopping(Struct, frozen=True):
    kill_at: float


class Killing(Struct, frozen=True):
    """SIGKILL was sent."""


class Removing(Struct, frozen=True):
    pass


class Clearing(Struct, frozen=True):
    pass


class Waiting(Struct, frozen=True):
    until: float


class Settled(Struct, frozen=True):
    pass


class Gone(Struct, frozen=True):
    """Nothing of the pod is left on this node."""


Doing: TypeAlias = (
    Looking
    | Pulling
    | Making
    | Starting
    | Stopping
    | Killing
    | Removing
    | Clearing
    | Waiting
    | Settled
    | Gone
)


class PodLife(Struct, frozen=True):
    """The state of a pod: `seen` is its container as the engine last reported it, None until then; `reported`
    is the last report to control."""

    name: str
    doing: Doing
    spec: PodSpec | None = None
    mark: Mark | None = None
    seen: Container | None = None
    reported: PodState | None = None
    failures: int = 0


Stepped: TypeAlias = tuple[PodLife, tuple[Command, ...]]
