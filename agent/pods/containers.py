"""Pods as containers of this host's engine: the PodEngine of a real node.

A pod's container and its own volume bear its name and the agent's label; there is nothing to remember but the
image of each version (`agent.container_images`). On a host without an engine every call says so.

A limit of a container's disk is asked for, and left out for good where the engine cannot keep to it (overlay
needs xfs with project quotas): that is logged once. The size of a pod's own volume is never enforced.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from stoker.agent.beside import beside
from stoker.agent.container_engine import LIBPOD, ContainerEngine
from stoker.agent.container_errors import EngineError, NotThere
from stoker.agent.container_images import Images, Wanted
from stoker.agent.container_plan import AGENT_LABEL, POD_LABEL, Limits, cdi_name, ended_words, is_gpu, refusal
from stoker.agent.container_plan import Ended as EngineEnded
from stoker.agent.container_spawner import OnHost
from stoker.agent.pod_events import Absent, Container, Ended, Made, Mark, Runs
from stoker.agent.pod_plan import (
    RESTARTS_LABEL,
    VERSION_LABEL,
    PodPlan,
    container_name,
    docker_pod_request,
    pod_plan,
    podman_pod_request,
    volume_labels,
)
from stoker.agent.pod_seam import PodFailed
from stoker.agent.seams import SpawnFailed
from stoker.agent.volumes import folder as volume_folder
from stoker.wire.messages import Device, PodSpec, PortMapping

log = logging.getLogger(__name__)

T = TypeVar("T")

LOG_LINES = 50
CREATE_S = 120
NOT_STARTED = frozenset({"created", "configured", "initialized"})
RUNNING = frozenset({"running", "paused", "restarting", "stopping"})


class PodContainers:
    """`agent` labels what is made. `devices` are the node's, `volumes` its root of network volumes."""

    def __init__(
        self,
        engine: ContainerEngine,
        images: Images,
        agent: str,
        devices: tuple[Device, ...],
        *,
        limits: Limits | None = None,
        volumes: OnHost | None = None,
    ) -> None:
        self._engine, self._images, self._agent, self._devices = engine, images, agent, devices
        self._limits = limits or Limits()
        self._volumes = volumes
        self._limits_disks = True

    async def found(self) -> Mapping[str, Mark]:
        if not self._engine.facts.name:
            return {}
        label = {"label": [f"{AGENT_LABEL}={self._agent}", POD_LABEL]}
        listed = await self._call(lambda client: client.containers(all=True, filters=label))
        return {labels[POD_LABEL]: _first_mark(labels) for labels in (one["Labels"] for one in listed)}

    async def look(self, pod: str) -> Container:
        try:
            return await self._call(lambda client: self._looked(client, container_name(pod)))
        except _NotThere:
            return Absent()

    async def pull(self, spec: PodSpec) -> None:
        with _in_words():
            self._check(spec)
            await self._images.resolve(_wanted(spec))

    async def make(self, spec: PodSpec) -> None:
        with _in_words():
            gpus = self._check(spec)
            image = await self._images.resolve(_wanted(spec))
            folder = await beside(f"folder of {spec.pod}", lambda: self._folder(spec))
        plan = pod_plan(spec, image, gpus, folder, self._agent, self._limits)
        if plan.volume:
            labels = volume_labels(self._agent, spec.pod)
            await self._call(lambda client: client.create_volume(plan.volume, labels=labels))
        await self._make(plan, container_name(spec.pod))

    async def start(self, spec: PodSpec) -> None:
        name, gpus = container_name(spec.pod), self._check(spec)
        with _in_words():
            await self._engine.make_way([cdi_name(uuid) for uuid in gpus])
        await self._call(lambda client: client.start(name))
        if not gpus:
            return
        with _in_words():
            why = await self._engine.missing_gpu(name, len(gpus))
        if why is not None:
            await self.signal(spec.pod, "SIGKILL")
            raise PodFailed(f"{why}, and was killed")

    async def signal(self, pod: str, name: str) -> None:
        await self._engine.signal(container_name(pod), name)

    async def remove(self, pod: str) -> None:
        name = container_name(pod)
        with contextlib.suppress(_NotThere):
            await self._call(lambda client: client.remove_container(name, v=True, force=True))

    async def remove_volume(self, pod: str) -> None:
        self._images.forget(f"pod {pod}")
        with contextlib.suppress(_NotThere):
            await self._call(lambda client: client.remove_volume(container_name(pod)))

    # -- making

    def _check(self, spec: PodSpec) -> tuple[str, ...]:
        """The uuids of its GPUs. Raises PodFailed where this node cannot run it."""
        here = {device.uuid: device for device in self._devices}
        if unknown := [uuid for uuid in spec.devices if uuid not in here]:
            raise PodFailed(f"this node has no device {', '.join(unknown)}")
        gpus = tuple(uuid for uuid in spec.devices if is_gpu(here[uuid]))
        device = here[gpus[0]] if gpus else None
        if (why := refusal(self._engine.facts, spec.image, device)) is not None:
            raise PodFailed(why)
        return gpus

    def _folder(self, spec: PodSpec) -> str:
        if not spec.volume:
            return ""
        root = self._volumes
        path = volume_folder(None if root is None else root.inside, spec.volume)
        assert root is not None
        return root.path(path)

    async def _make(self, plan: PodPlan, name: str) -> None:
        if not self._limits_disks:
            plan = replace(plan, disk_bytes=None)
        try:
            await self._call(lambda client: self._created(client, plan, name))
        except PodFailed as error:
            if plan.disk_bytes is None or "storage-opt" not in str(error).lower():
                raise
            log.warning("the disks of pods are not limited: %s", error)
            self._limits_disks = False
            await self._make(plan, name)

    def _created(self, client: Any, plan: PodPlan, name: str) -> None:
        if self._engine.facts.name != "podman":
            client.create_container_from_config(docker_pod_request(plan), name)
            return
        request = podman_pod_request(plan, name)
        answer = client.post(f"{client.base_url}/{LIBPOD}/containers/create", json=request, timeout=CREATE_S)
        client._raise_for_status(answer)

    # -- looking

    def _looked(self, client: Any, name: str) -> Container:
        told = client.inspect_container(name)
        labels = told["Config"]["Labels"] or {}
        if labels.get(AGENT_LABEL) != self._agent:
            raise EngineError(f"a container that is not this agent's has the name {name}")
        state, version = told["State"], _number(labels.get(VERSION_LABEL))
        if state["Status"] in NOT_STARTED:
            return Made(version)
        if state["Status"] in RUNNING:
            ports = _ports(told["NetworkSettings"].get("Ports") or {})
            return Runs(version, _milliseconds(state["StartedAt"]), ports)
        memory = told["HostConfig"].get("Memory") or None
        code = int(state["ExitCode"])
        ended = EngineEnded(code, bool(state.get("OOMKilled")), str(state.get("Error") or ""))
        _, why = ended_words(ended, None, terminated=False, memory=memory)
        return Ended(version, code, why, self._taken(client, state["FinishedAt"]), _tail(client, name))

    def _taken(self, client: Any, finished: str) -> bool:
        """Dockerd takes its containers along when it goes, and makes its default bridge anew when it comes.
        Podman's containers outlive it."""
        if self._engine.facts.name != "docker":
            return False
        bridges = client.networks(names=["bridge"])  # none, where dockerd was told to make none
        born = [bridge["Created"] for bridge in bridges if bridge["Name"] == "bridge"]
        return bool(born) and datetime.fromisoformat(finished) < datetime.fromisoformat(born[0])

    async def _call(self, work: Callable[[Any], T]) -> T:
        if not (facts := self._engine.facts).name:
            raise PodFailed(f"a pod needs a container engine; this node has none: {facts.why}")
        with _in_words():
            return await self._engine.call(lambda: work(self._engine.client))


class _NotThere(PodFailed):
    pass


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except NotThere as error:
        raise _NotThere(str(error)) from None
    except (EngineError, SpawnFailed) as error:
        raise PodFailed(str(error)) from None


def _wanted(spec: PodSpec) -> Wanted:
    return Wanted(f"pod {spec.pod}", spec.version, spec.image, spec.registry)


def _first_mark(labels: Mapping[str, str]) -> Mark:
    return Mark(_number(labels.get(VERSION_LABEL)), _number(labels.get(RESTARTS_LABEL)), "runs")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _ports(told: Mapping[str, Any]) -> tuple[PortMapping, ...]:
    """Each is told for IPv4 and for IPv6."""
    found: dict[tuple[int, str], int] = {}
    for port, places in told.items():
        number, _, transport = port.partition("/")
        for place in places or ():
            found.setdefault((int(number), transport), int(place["HostPort"]))
    return tuple(PortMapping(private, public, kind) for (private, kind), public in sorted(found.items()))


def _milliseconds(when: str) -> int:
    return int(datetime.fromisoformat(when).timestamp() * 1000)


def _tail(client: Any, name: str) -> tuple[str, ...]:
    text = client.logs(name, tail=LOG_LINES).decode(errors="replace")
    return tuple(text.splitlines()[-LOG_LINES:])
