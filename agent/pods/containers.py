"""Runs pods as containers of this host's engine. Implements PodEngine.

A pod's container and its own volume carry the pod's name and the agent's label, so only the image of each
version must be saved (`agent.workers.containers.images`). On a host without an engine every method raises
PodFailed.

The limit of a container's disk is requested first. If the engine cannot enforce it (overlay needs xfs with
project quotas), it is left out from then on, and a warning is logged once. The size of a pod's own volume is
never enforced.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.free_ports import HostPorts, NoPort
from stoker.agent.host.logs.tail import KEPT, WATCHED
from stoker.agent.host.storage.volumes import folder as volume_folder
from stoker.agent.pods.events import Absent, Container, Ended, Made, Mark, Runs
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.pods.plan import (
    PORTS_LABEL,
    RESTARTS_LABEL,
    VERSION_LABEL,
    PodPlan,
    container_name,
    docker_pod_request,
    labelled_ports,
    pod_plan,
    podman_pod_request,
    requested_ports,
    volume_labels,
)
from stoker.agent.workers.containers.engine import LIBPOD, ContainerEngine
from stoker.agent.workers.containers.errors import EngineError, NotThere
from stoker.agent.workers.containers.images import Images, WantedImage
from stoker.agent.workers.containers.plan import (
    AGENT_LABEL,
    POD_LABEL,
    ContainerExit,
    ContainerLimits,
    cdi_name,
    describe_container_exit,
    is_gpu,
    refusal,
)
from stoker.agent.workers.containers.spawner import HostFolder
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import Device, PodSpec, PortMapping

log = logging.getLogger(__name__)

T = TypeVar("T")

PORT_TAKEN = re.compile("port is already allocated|address already in use", re.IGNORECASE)
PORT_TRIES = 5
LOG_LINES = 50
CREATE_S = 120
NOT_STARTED = frozenset({"created", "configured", "initialized"})
RUNNING = frozenset({"running", "paused", "restarting", "stopping"})


class PodContainers:
    """The containers of pods. `agent` labels the containers. `devices` are the node's; `volumes` is its root
    of network volumes, `ports` gives out those of this host."""

    def __init__(
        self,
        engine: ContainerEngine,
        images: Images,
        agent: str,
        devices: tuple[Device, ...],
        *,
        limits: ContainerLimits | None = None,
        volumes: HostFolder | None = None,
        ports: HostPorts | None = None,
    ) -> None:
        self._engine, self._images, self._agent, self._devices = engine, images, agent, devices
        self._limits = limits or ContainerLimits()
        self._volumes = volumes
        self._ports = ports or HostPorts()
        self._limits_disks = True

    async def found(self) -> Mapping[str, Mark]:
        if not self._engine.facts.name:
            return {}
        return {labels[POD_LABEL]: _first_mark(labels) for labels in await self._labels()}

    async def _labels(self) -> list[Mapping[str, str]]:
        """Returns the labels of this agent's pods' containers, whose ports are kept for them."""
        label = {"label": [f"{AGENT_LABEL}={self._agent}", POD_LABEL]}
        listed = await self._call(lambda client: client.containers(all=True, filters=label))
        for labels in (found := [one["Labels"] for one in listed]):
            ports = {public for _, _, public in labelled_ports(labels.get(PORTS_LABEL, ""))}
            self._ports.keep(labels[POD_LABEL], ports)
        return found

    async def look(self, pod: str) -> Container:
        try:
            return await self._call(lambda client: self._inspect(client, container_name(pod)))
        except _NotThere:
            return Absent()

    async def log(self, pod: str, since: int | None) -> bytes:
        name, last = container_name(pod), KEPT if since is None else WATCHED

        def read(client: Any) -> bytes:
            return bytes(client.logs(name, timestamps=True, since=since, tail=last))

        return await self._call(read)

    async def pull(self, spec: PodSpec) -> None:
        with _as_pod_errors():
            self._check(spec)
            await self._images.resolve(_wanted(spec))

    async def make(self, spec: PodSpec) -> None:
        with _as_pod_errors():
            gpus = self._check(spec)
            image = await self._images.resolve(_wanted(spec))
            folder = await run_in_thread(f"folder of {spec.pod}", lambda: self._folder(spec))
        free = await self._free_ports(spec.pod, len(requested_ports(spec)))
        plan = pod_plan(spec, image, gpus, folder, self._agent, self._limits, free)
        if plan.volume:
            labels = volume_labels(self._agent, spec.pod)
            await self._call(lambda client: client.create_volume(plan.volume, labels=labels))
        await self._create(plan, container_name(spec.pod))

    async def start(self, spec: PodSpec) -> None:
        name, gpus = container_name(spec.pod), self._check(spec)
        with _as_pod_errors():
            await self._engine.free_devices([cdi_name(uuid) for uuid in gpus])
        await self._start(spec, name)
        if not gpus:
            return
        with _as_pod_errors():
            why = await self._engine.missing_gpu(name, len(gpus))
        if why is not None:
            await self.signal(spec.pod, "SIGKILL")
            raise PodFailed(f"{why}, and was killed")

    async def _start(self, spec: PodSpec, name: str) -> None:
        """Starts the container. If one of its ports was taken meanwhile, a container that has never run is
        created again, with other ports."""
        for tries in range(1, PORT_TRIES + 1):
            try:
                await self._call(lambda client: client.start(name))
            except PodFailed as error:
                if tries == PORT_TRIES or not PORT_TAKEN.search(str(error)):
                    raise
                if not isinstance(await self.look(spec.pod), Made):
                    raise PodFailed(
                        f"a port of it was taken meanwhile, and a reset gets others: {error}"
                    ) from None
                await self.remove(spec.pod)
                await self.make(spec)
            else:
                return

    async def _free_ports(self, pod: str, count: int) -> list[int]:
        """Returns free ports that belong to no other pod, whether that runs or not, and to no worker."""
        if not count:
            return []
        await self._labels()
        try:
            return await run_in_thread("free ports", lambda: self._ports.take(pod, count))
        except NoPort as error:
            raise PodFailed(str(error)) from None

    async def signal(self, pod: str, name: str) -> None:
        await self._engine.signal(container_name(pod), name)

    async def remove(self, pod: str) -> None:
        name = container_name(pod)
        with contextlib.suppress(_NotThere):
            await self._call(lambda client: client.remove_container(name, v=True, force=True))
        self._ports.give_back(pod)

    async def remove_volume(self, pod: str) -> None:
        self._images.forget(f"pod {pod}")
        with contextlib.suppress(_NotThere):
            await self._call(lambda client: client.remove_volume(container_name(pod)))

    # -- making

    def _check(self, spec: PodSpec) -> tuple[str, ...]:
        """Returns the uuids of its GPUs. Raises PodFailed if this node cannot run it."""
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

    async def _create(self, plan: PodPlan, name: str) -> None:
        if not self._limits_disks:
            plan = replace(plan, disk_bytes=None)
        try:
            await self._call(lambda client: self._request_container(client, plan, name))
        except PodFailed as error:
            if plan.disk_bytes is None or "storage-opt" not in str(error).lower():
                raise
            log.warning("the disks of pods are not limited: %s", error)
            self._limits_disks = False
            await self._create(plan, name)

    def _request_container(self, client: Any, plan: PodPlan, name: str) -> None:
        if self._engine.facts.name != "podman":
            client.create_container_from_config(docker_pod_request(plan), name)
            return
        request = podman_pod_request(plan, name)
        answer = client.post(f"{client.base_url}/{LIBPOD}/containers/create", json=request, timeout=CREATE_S)
        client._raise_for_status(answer)

    # -- looking

    def _inspect(self, client: Any, name: str) -> Container:
        found = client.inspect_container(name)
        labels = found["Config"]["Labels"] or {}
        if labels.get(AGENT_LABEL) != self._agent:
            raise EngineError(f"a container that is not this agent's has the name {name}")
        state, version = found["State"], _number(labels.get(VERSION_LABEL))
        if state["Status"] in NOT_STARTED:
            return Made(version)
        if state["Status"] in RUNNING:
            ports = _ports(found["NetworkSettings"].get("Ports") or {}, labels.get(PORTS_LABEL, ""))
            started_ms = int(datetime.fromisoformat(state["StartedAt"]).timestamp() * 1000)
            return Runs(version, started_ms, ports)
        memory = found["HostConfig"].get("Memory") or None
        code = int(state["ExitCode"])
        ended = ContainerExit(code, bool(state.get("OOMKilled")), str(state.get("Error") or ""))
        _, why = describe_container_exit(ended, None, terminated=False, memory_bytes=memory)
        return Ended(version, code, why, self._taken(client, state["FinishedAt"]), _tail(client, name))

    def _taken(self, client: Any, finished: str) -> bool:
        """Returns whether it ended before the engine's present start. Dockerd stops its containers when it
        stops, and creates its default bridge again when it starts. Podman's containers outlive it."""
        if self._engine.facts.name != "docker":
            return False
        bridges = client.networks(names=["bridge"])  # none if dockerd is configured to create none
        created = [bridge["Created"] for bridge in bridges if bridge["Name"] == "bridge"]
        return bool(created) and datetime.fromisoformat(finished) < datetime.fromisoformat(created[0])

    async def _call(self, work: Callable[[Any], T]) -> T:
        if not (facts := self._engine.facts).name:
            raise PodFailed(f"a pod needs a container engine; this node has none: {facts.why}")
        with _as_pod_errors():
            return await self._engine.call(lambda: work(self._engine.client))


class _NotThere(PodFailed):
    pass


@contextlib.contextmanager
def _as_pod_errors() -> Iterator[None]:
    try:
        yield
    except NotThere as error:
        raise _NotThere(str(error)) from None
    except (EngineError, SpawnFailed) as error:
        raise PodFailed(str(error)) from None


def _wanted(spec: PodSpec) -> WantedImage:
    return WantedImage(f"pod {spec.pod}", spec.version, spec.image, spec.registry)


def _first_mark(labels: Mapping[str, str]) -> Mark:
    return Mark(_number(labels.get(VERSION_LABEL)), _number(labels.get(RESTARTS_LABEL)), "runs")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _ports(published: Mapping[str, Any], label: str) -> tuple[PortMapping, ...]:
    """Returns the ports by the numbers that were requested. The engine lists each for IPv4 and for IPv6."""
    requested = {(public, transport): number for number, transport, public in labelled_ports(label)}
    found: dict[tuple[int, str], int] = {}
    for port, bindings in published.items():
        number, _, transport = port.partition("/")
        for binding in bindings or ():
            public = int(binding["HostPort"])
            found.setdefault((requested.get((public, transport), int(number)), transport), public)
    return tuple(PortMapping(private, public, kind) for (private, kind), public in sorted(found.items()))


def _tail(client: Any, name: str) -> tuple[str, ...]:
    text = client.logs(name, tail=LOG_LINES).decode(errors="replace")
    return tuple(text.splitlines()[-LOG_LINES:])
