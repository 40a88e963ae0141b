"""The states of the pod machine (`agent.pods.pod_machine`). Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stoker.agent.pods.events import Command, Container, Mark
from stoker.wire.messages import PodSpec, PodState


@dataclass(frozen=True, slots=True)
class Looking:
    pass


@dataclass(frozen=True, slots=True)
class Pulling:
    pass


@dataclass(frozen=True, slots=True)
class Making:
    pass


@dataclass(frozen=True, slots=True)
class Starting:
    """The state of a pod that is being started. `mark` is that of the spec for which it is started: another
    spec may have arrived since."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Stopping:
    kill_at: float


@dataclass(frozen=True, slots=True)
class Killing:
    """SIGKILL was sent."""


@dataclass(frozen=True, slots=True)
class Removing:
    pass


@dataclass(frozen=True, slots=True)
class Clearing:
    pass


@dataclass(frozen=True, slots=True)
class Waiting:
    until: float


@dataclass(frozen=True, slots=True)
class Settled:
    pass


@dataclass(frozen=True, slots=True)
class Gone:
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


@dataclass(frozen=True, slots=True)
class PodLife:
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
