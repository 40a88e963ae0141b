"""What the pods' shell needs of an engine, as a Protocol that is injected.

The real one is `agent.pod_containers`; `agent.fake_pods` keeps the same promises without an engine, for the
tests and the simulation. The rules of `agent.seams` hold here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stoker.agent.pod_events import Container, Mark
from stoker.wire.messages import PodSpec


class PodFailed(Exception):
    """The engine refused, or cannot be reached; the text is a sentence for the pod's owner."""


class PodEngine(Protocol):
    """Every call raises PodFailed. A pod has one container, and one volume of its own at most."""

    async def found(self) -> Mapping[str, Mark]:
        """The pods of this agent that have a container, by its labels; each is taken to be running."""

    async def look(self, pod: str) -> Container: ...

    async def pull(self, spec: PodSpec) -> None:
        """Its image, unless that is here. The same one for as long as the version is the same. May be
        cancelled."""

    async def make(self, spec: PodSpec) -> None:
        """Its container, which is not there yet, and its own volume, which may be."""

    async def start(self, spec: PodSpec) -> None:
        """Its container, made or ended. When this returns it has run, with all of its GPUs."""

    async def signal(self, pod: str, name: str) -> None:
        """SIGTERM or SIGKILL. Nothing when it has ended."""

    async def remove(self, pod: str) -> None:
        """Its container. Idempotent; its own volume stays."""

    async def remove_volume(self, pod: str) -> None:
        """Its own volume, and what was remembered of its image. Idempotent."""


class NoPods:
    """Of an agent that was given none."""

    async def found(self) -> Mapping[str, Mark]:
        return {}

    async def look(self, pod: str) -> Container:
        raise PodFailed("this agent runs no pods")

    async def pull(self, spec: PodSpec) -> None: ...

    async def make(self, spec: PodSpec) -> None: ...

    async def start(self, spec: PodSpec) -> None: ...

    async def signal(self, pod: str, name: str) -> None: ...

    async def remove(self, pod: str) -> None: ...

    async def remove_volume(self, pod: str) -> None: ...
