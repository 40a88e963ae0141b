"""The states of the children of `stoker up`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Waiting:
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Starting:
    """The state of a child that is not ready yet. `deadline` is None after it has passed and SIGKILL was
    sent."""

    tries: int
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Running:
    tries: int
    since: float


@dataclass(frozen=True, slots=True)
class Relieved:
    """The state of a child that runs on while its successor loads. `deadline` is the successor's; None after
    the successor was killed."""

    tries: int
    since: float
    deadline: float | None


@dataclass(frozen=True, slots=True)
class HandingOver:
    """SIGTERM was sent, and its successor waits for its end, or is `ready` already: what it waited for is
    free before the process has ended. `deadline` is None after SIGKILL was sent."""

    deadline: float | None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class BackingOff:
    tries: int
    until: float


@dataclass(frozen=True, slots=True)
class Restarting:
    """SIGTERM was sent; after its exit it starts again at once. `deadline` is None after SIGKILL was sent."""

    deadline: float | None


@dataclass(frozen=True, slots=True)
class Stopping:
    """SIGTERM was sent. `deadline` is None after SIGKILL was sent."""

    deadline: float | None


@dataclass(frozen=True, slots=True)
class Gone:
    pass


Phase: TypeAlias = (
    Waiting | Starting | Running | Relieved | HandingOver | BackingOff | Restarting | Stopping | Gone
)


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    phase: Phase = Waiting()
    was_ready: bool = False

    @property
    def alive(self) -> bool:
        return isinstance(self.phase, Starting | Running | Relieved | HandingOver | Restarting | Stopping)

    @property
    def serves(self) -> bool:
        return isinstance(self.phase, Running | Relieved)


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """The state of the supervisor. `children` are in the order of their start. `code` is the exit status of
    `up`."""

    children: tuple[Child, ...]
    stopping: bool = False
    code: int = 0
