"""A PodEngine without an engine, for tests and the simulation. A pod's command is a script for its container:

    ("runs",)                  runs until SIGTERM, like an empty command
    ("stubborn",)              runs until SIGKILL
    ("ends", "7", "a line")    ends at once, with that code and that log
    ("needs", "memory")        ends at once, out of memory

It behaves like a real engine (tests/agent/workers/containers/pods/test_pods.py tests both). `images` can be
pulled; None means all images. `stop` stops the engine with all running containers. The engine outlives
agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from stoker.agent.pods.events import Absent, Container, Ended, Made, Mark, Runs
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.pods.plan import own_volume
from stoker.wire.messages import PodSpec, PortMapping

TAKES_S = 0.001
FIRST_PORT = 32768


@dataclass(slots=True)
class FakeContainer:
    spec: PodSpec
    state: Container


class FakePodEngine:
    """A pod engine in memory. `containers`, `volumes` and `logs` are by pod. `why`: the reason why there is
    no engine, or empty."""

    def __init__(self, images: set[str] | None = None, why: str = "") -> None:
        self.images, self.why = images, why
        self.present: set[str] = set()
        self.containers: dict[str, FakeContainer] = {}
        self.volumes: set[str] = set()
        self.pulled: list[str] = []
        self.logs: dict[str, bytes] = {}
        self.up = True
        self._port = FIRST_PORT

    # -- what tests do to it

    def stop(self) -> None:
        self.up = False
        for one in self.containers.values():
            if isinstance(one.state, Runs):
                one.state = Ended(one.spec.version, 143, "ended by SIGTERM", taken=True)

    def start_again(self) -> None:
        self.up = True

    def end(self, pod: str, code: int = 0) -> None:
        """Ends the pod's container as if by itself."""
        one = self.containers[pod]
        one.state = Ended(one.spec.version, code, f"exited with code {code}")

    # -- the interface

    async def found(self) -> Mapping[str, Mark]:
        if self.why:
            return {}
        await self._respond()
        specs = {pod: one.spec for pod, one in self.containers.items()}
        return {pod: Mark(spec.version, spec.restarts, "runs") for pod, spec in specs.items()}

    async def look(self, pod: str) -> Container:
        await self._respond()
        found = self.containers.get(pod)
        return Absent() if found is None else found.state

    async def log(self, pod: str, since: int | None) -> bytes:
        await self._respond()
        return self.logs.get(pod, b"")

    async def pull(self, spec: PodSpec) -> None:
        await self._respond()
        if spec.image in self.present:
            return
        if self.images is not None and spec.image not in self.images:
            raise PodFailed(f"image {spec.image} cannot be pulled: manifest unknown")
        self.present.add(spec.image)
        self.pulled.append(spec.image)

    async def make(self, spec: PodSpec) -> None:
        await self._respond()
        if spec.pod in self.containers:
            raise PodFailed(f"the name {spec.pod} is in use")
        if own_volume(spec):
            self.volumes.add(spec.pod)
        self.containers[spec.pod] = FakeContainer(spec, Made(spec.version))

    async def start(self, spec: PodSpec) -> None:
        await self._respond()
        one = self.containers.get(spec.pod)
        if one is None:
            raise PodFailed(f"no such container: {spec.pod}")
        one.state = self._begun(one.spec)

    async def signal(self, pod: str, name: str) -> None:
        await self._respond()
        one = self.containers.get(pod)
        if one is None or not isinstance(one.state, Runs):
            return
        if name == "SIGKILL":
            one.state = Ended(one.spec.version, 137, "killed")
        elif one.spec.command[:1] != ("stubborn",):
            one.state = Ended(one.spec.version, 0, "exited with code 0")

    async def remove(self, pod: str) -> None:
        await self._respond()
        self.containers.pop(pod, None)

    async def remove_volume(self, pod: str) -> None:
        await self._respond()
        self.volumes.discard(pod)

    async def _respond(self) -> None:
        await asyncio.sleep(TAKES_S)
        if self.why:
            raise PodFailed(f"a pod needs a container engine; this node has none: {self.why}")
        if not self.up:
            raise PodFailed("the container engine cannot be reached")

    def _begun(self, spec: PodSpec) -> Container:
        match spec.command:
            case ("ends", code, *lines):
                return Ended(spec.version, int(code), f"exited with code {code}", log_tail=tuple(lines))
            case ("needs", "memory"):
                return Ended(spec.version, 137, "killed: out of memory")
        return Runs(spec.version, 0, tuple(self._published(spec)))

    def _published(self, spec: PodSpec) -> list[PortMapping]:
        made = []
        for port in spec.ports:
            self._port += 1
            made.append(PortMapping(port.private, self._port, "udp" if port.protocol == "udp" else "tcp"))
        return made
