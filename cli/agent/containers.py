"""What an agent is told of containers: the engine, their limits, and what the host calls its folder.

DOCKER_HOST                     the engine; without it the usual sockets of docker and podman are tried
STOKER_CONTAINER_MEMORY_MB      of each container; without it there is no limit of its own
STOKER_CONTAINER_CPUS           the same, in cores: 1.5
STOKER_CONTAINER_PIDS           processes and threads of each container, 4096 without it
STOKER_HOST_DATA_DIR            what the host calls the data folder of an agent that is in a container
STOKER_HOST_VOLUME_ROOT         the same of its volume root
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker.agent.beside import beside
from stoker.agent.container_engine import ContainerEngine, addresses, connect
from stoker.agent.container_errors import EngineError
from stoker.agent.container_images import Images
from stoker.agent.container_plan import Engine, Limits
from stoker.agent.container_spawner import ContainerSpawner, OnHost
from stoker.agent.files import ScratchFolders
from stoker.agent.pod_containers import PodContainers
from stoker.agent.worker_users import WorkerUsers
from stoker.cli.errors import CliError
from stoker.wire.messages import Device

log = logging.getLogger(__name__)

HOST_DATA_DIR, HOST_VOLUME_ROOT = "STOKER_HOST_DATA_DIR", "STOKER_HOST_VOLUME_ROOT"
MEMORY_MB, CPUS, PIDS = "STOKER_CONTAINER_MEMORY_MB", "STOKER_CONTAINER_CPUS", "STOKER_CONTAINER_PIDS"
NOFILE_MAX = 65_536
PID_MAX = Path("/proc/sys/kernel/pid_max")
"""Podman lowers its own limit of processes to this, and may then not give a container more."""
PROBE_S = 20.0
LOOK_FIRST_S, LOOK_LONGEST_S = 5.0, 60.0
"""How often an engine is looked for that was not there: a host that boots may start it after its agent."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The agent's folders that containers see parts of."""

    data: OnHost
    volumes: OnHost | None


def shown(folder: Path, volume_root: Path | None, given: Mapping[str, str]) -> Shown:
    volumes = None if volume_root is None else _on_host(volume_root, HOST_VOLUME_ROOT, given)
    return Shown(_on_host(folder, HOST_DATA_DIR, given), volumes)


def _on_host(inside: Path, name: str, given: Mapping[str, str]) -> OnHost:
    outside = Path(given[name]) if given.get(name) else inside
    if not outside.is_absolute():
        raise CliError(f"{name} is a path of the engine's host, from its root; got {given[name]!r}")
    return OnHost(inside, outside)


async def container_engine(node: str, environment: Mapping[str, str], shown: Shown) -> ContainerEngine:
    """The engine of this host, rid of what an earlier agent of this data folder left in it; or none, with the
    reason. A host without an engine is asked nothing. Raises CliError when the engine's host was named wrong
    folders; an engine that sees others without being named any is as good as none."""
    engine = await _connected(environment)
    if engine.facts.name:
        engine = await _prepared(engine, node, shown)
    log.info("container engine: %s", engine.facts.words)
    return engine


async def late_engine(
    engine: ContainerEngine, node: str, environment: Mapping[str, str], shown: Shown
) -> bool:
    """Where none answered at the agent's start, one is looked for: `engine` becomes it. Whether it did; an
    engine that sees other folders, named wrong or not, is then none for good, and `facts` say it."""
    wait_s = LOOK_FIRST_S
    while not engine.facts.name and not engine.facts.elsewhere:
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LOOK_LONGEST_S)
        found = await _connected(environment)
        if found.facts.name:
            engine.become(await _prepared_late(found, node, shown))
            log.info("container engine: %s", engine.facts.words)
            return True
    return False


async def _prepared_late(found: ContainerEngine, node: str, shown: Shown) -> ContainerEngine:
    """What runs here already does not end for a name that is wrong."""
    try:
        return await _prepared(found, node, shown)
    except CliError as error:
        return ContainerEngine(None, Engine(why=str(error), elsewhere=True))


def _connected(environment: Mapping[str, str]) -> asyncio.Future[ContainerEngine]:
    """On a thread that holds up no end of the agent."""
    return beside("look for an engine", lambda: connect(addresses(environment, os.getuid())))


async def _prepared(engine: ContainerEngine, node: str, shown: Shown) -> ContainerEngine:
    await _remove_leftovers(engine, node)
    return await _seeing(engine, node, shown)


async def _remove_leftovers(engine: ContainerEngine, node: str) -> None:
    try:
        left = await engine.remove_all(node)
    except EngineError as error:
        log.warning("containers of an earlier agent may be left: %s", error)
    else:
        if left:
            log.warning("removed %d containers that an earlier agent left", left)


async def _seeing(engine: ContainerEngine, node: str, shown: Shown) -> ContainerEngine:
    for name, folder in ((HOST_DATA_DIR, shown.data), (HOST_VOLUME_ROOT, shown.volumes)):
        if folder is None:
            continue
        try:
            async with asyncio.timeout(PROBE_S):
                why = await engine.unseen(node, folder.inside, folder.outside)
        except (EngineError, OSError) as error:
            said = str(error) or f"it has not answered for {PROBE_S:g} s"
            log.warning("whether the engine sees %s is not known: %s", folder.inside, said)
            continue
        if why is None:
            continue
        await engine.leave()
        if folder.outside != folder.inside:
            raise CliError(f"{name} is wrong: {why}")
        why += f"; {name} names it, where it has another path there"
        return ContainerEngine(None, Engine(why=why, elsewhere=True))
    return engine


def container_spawner(
    engine: ContainerEngine,
    shown: Shown,
    node: str,
    scratch: ScratchFolders,
    given: Mapping[str, str],
    users: WorkerUsers,
) -> ContainerSpawner:
    return ContainerSpawner(
        engine,
        shown.data,
        node,
        scratch,
        limits=container_limits(given),
        users=users,
        volumes=shown.volumes,
    )


def pod_containers(
    engine: ContainerEngine,
    images: Images,
    shown: Shown,
    node: str,
    devices: tuple[Device, ...],
    given: Mapping[str, str],
) -> PodContainers:
    limits = container_limits(given)
    return PodContainers(engine, images, node, devices, limits=limits, volumes=shown.volumes)


def container_limits(given: Mapping[str, str]) -> Limits:
    memory = _number(given, MEMORY_MB, 16, 1 << 24)
    cpus = _number(given, CPUS, 0.01, 4096)
    pids = _number(given, PIDS, 8, 1 << 22)
    pid_max = int(PID_MAX.read_text())
    return Limits(
        memory=None if memory is None else int(memory) << 20,
        cpus=cpus,
        pids=4096 if pids is None else int(pids),
        nofile=_at_most(NOFILE_MAX, resource.RLIMIT_NOFILE),
        nproc=_at_most(pid_max, resource.RLIMIT_NPROC),
    )


def _at_most(value: int, limit: int) -> int:
    _, hard = resource.getrlimit(limit)
    return value if hard == resource.RLIM_INFINITY else min(hard, value)


def _number(given: Mapping[str, str], name: str, low: float, high: float) -> float | None:
    if name not in given:
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise CliError(f"{name} must be a number from {low} to {high}; got {given[name]!r}")
    return value
