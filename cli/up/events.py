"""The events that `cli.up.supervisor` takes, and the commands that it returns. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Begin:
    at: float


@dataclass(frozen=True, slots=True)
class BecameReady:
    at: float
    child: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The event that a child has ended. `why` is shown at the terminal."""

    at: float
    child: str
    why: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Ctrl-C, SIGTERM or SIGHUP."""

    at: float


@dataclass(frozen=True, slots=True)
class RestartRequested:
    at: float
    child: str


@dataclass(frozen=True, slots=True)
class SuccessorWaits:
    at: float
    child: str


@dataclass(frozen=True, slots=True)
class SuccessorExited:
    at: float
    child: str
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = (
    Begin | BecameReady | Exited | StopRequested | RestartRequested | SuccessorWaits | SuccessorExited | Tick
)


@dataclass(frozen=True, slots=True)
class Start:
    child: str


@dataclass(frozen=True, slots=True)
class Terminate:
    child: str


@dataclass(frozen=True, slots=True)
class Kill:
    child: str


@dataclass(frozen=True, slots=True)
class StartSuccessor:
    """Starts a second process of the child, which waits for the end of the first."""

    child: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Makes the successor the child's process: the one before it has ended."""

    child: str


@dataclass(frozen=True, slots=True)
class KillSuccessor:
    child: str


@dataclass(frozen=True, slots=True)
class Print:
    text: str


@dataclass(frozen=True, slots=True)
class AllReady:
    """Every child is ready; repeated after each recovery."""


@dataclass(frozen=True, slots=True)
class Finish:
    code: int


Command: TypeAlias = (
    Start | Terminate | Kill | StartSuccessor | Promote | KillSuccessor | Print | AllReady | Finish
)
Commands: TypeAlias = tuple[Command, ...]
