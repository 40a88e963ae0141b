"""The interface between `agent.pods.pods` and a container engine.

`agent.pods.containers` implements it with the host's engine, `testing.fake_pods` without one, for the tests
and the simulation. The rules of `agent.interfaces` apply here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stoker.agent.pods.events import Container, Mark
from stoker.wire.messages import PodSpec


class PodFailed(Exception):
    """The engine refused, or cannot be reached. The message is for the pod's owner."""


class PodEngine(Protocol):
    """Every method may raise PodFailed. A pod has one container, and at most one volume of its own."""

    async def found(self) -> Mapping[str, Mark]:
        """Returns the pods of this agent that have a container, with marks from its labels. The marks say
        that each runs."""

    async def look(self, pod: str) -> Container: ...

    async def log(self, pod: str, since: int | None) -> bytes:
        """Returns what its container printed, with timestamps: from a second of the epoch on, or the last
        lines for None."""

    async def pull(self, spec: PodSpec) -> None:
        """Pulls its image, unless the node has it. A version always gets the same image. May be cancelled."""

    async def make(self, spec: PodSpec) -> None:
        """Creates its container, which must not exist, and its own volume, if that does not exist."""

    async def start(self, spec: PodSpec) -> None:
        """Starts its container, which is new or has ended. When this returns it has run, with all its
        GPUs."""

    async def signal(self, pod: str, name: str) -> None:
        """Sends SIGTERM or SIGKILL. Does nothing if the container has ended."""

    async def remove(self, pod: str) -> None:
        """Removes its container. Idempotent; its own volume stays."""

    async def remove_volume(self, pod: str) -> None:
        """Removes its own volume, and the pin of its image. Idempotent."""


class NoPods:
    """The engine of an agent that runs no pods."""

    async def found(self) -> Mapping[str, Mark]:
        return {}

    async def look(self, pod: str) -> Container:
        raise PodFailed("this agent runs no pods")

    async def log(self, pod: str, since: int | None) -> bytes:
        return b""

    async def pull(self, spec: PodSpec) -> None: ...

    async def make(self, spec: PodSpec) -> None: ...

    async def start(self, spec: PodSpec) -> None: ...

    async def signal(self, pod: str, name: str) -> None: ...

    async def remove(self, pod: str) -> None: ...

    async def remove_volume(self, pod: str) -> None: ...
