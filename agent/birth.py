"""What passes between the local spawner and those who make processes for it. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Child(Protocol):
    """A process that only this one may wait for; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """As subprocess gives it, once it was waited for."""

    def wait(self) -> int: ...

    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Birth:
    """What a new python worker is given, whoever makes it. `command` is what an interpreter would run."""

    module: str
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    socket: int
    output: int
    limits: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Started:
    """What a template is started with beside what its set declares."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    socket: int
    output: int


Fork = Callable[[Birth], Child]
"""Makes a worker in another way than by starting an interpreter. Raises OSError."""
