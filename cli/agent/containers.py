"""Settings of containers: the engine, their limits, and the agent's folders as paths of the engine's host.

DOCKER_HOST                     the engine; by default the usual sockets of docker and podman are tried
STOKER_CONTAINER_MEMORY_MB      limit of each container, in MiB; no limit by default
STOKER_CONTAINER_CPUS           limit of each container, in cores, such as 1.5; no limit by default
STOKER_CONTAINER_PIDS           processes and threads of each container; 4096 by default
STOKER_CONTAINER_NETWORK        bridge or host; bridge by default, host if the agent may not enter networks
STOKER_CONTAINER_USER           own or image; a user of its own for each by default, if the agent is root
STOKER_HOST_DATA_DIR            the data folder's path on the host, for an agent that runs in a container
STOKER_HOST_VOLUME_ROOT         the volume root's path on the host, likewise
STOKER_HOST_WEIGHTS_DIR         the path of the weights on the host, likewise
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.pods.containers import PodContainers
from stoker.agent.workers.containers.connect import addresses, connect
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.errors import EngineError
from stoker.agent.workers.containers.images import Images
from stoker.agent.workers.containers.plan import ContainerLimits, EngineFacts, Network
from stoker.agent.workers.containers.spawner import ContainerSpawner, HostFolder, HostFolders
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.cli.agent.worker_users import of_containers
from stoker.cli.errors import CliError
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import Device

log = logging.getLogger(__name__)

HOST_DATA_DIR, HOST_VOLUME_ROOT = "STOKER_HOST_DATA_DIR", "STOKER_HOST_VOLUME_ROOT"
HOST_WEIGHTS_DIR = "STOKER_HOST_WEIGHTS_DIR"
MEMORY_MB, CPUS, PIDS = "STOKER_CONTAINER_MEMORY_MB", "STOKER_CONTAINER_CPUS", "STOKER_CONTAINER_PIDS"
NETWORK, USER = "STOKER_CONTAINER_NETWORK", "STOKER_CONTAINER_USER"
NOFILE_MAX = 65_536
PID_MAX = Path("/proc/sys/kernel/pid_max")
"""The highest process limit: podman lowers its own limit to this and cannot give a container more."""
PROBE_S = 20.0
LOOK_FIRST_S, LOOK_LONGEST_S = 5.0, 60.0
"""The shortest and the longest pause before a missing engine is looked for again: at boot, the host may start
it after the agent."""


def host_folders(
    folder: Path, volume_root: Path | None, weights: Path, variables: Mapping[str, str]
) -> HostFolders:
    """Weights below the data folder need no path of their own."""
    volumes = None if volume_root is None else _on_host(volume_root, HOST_VOLUME_ROOT, variables)
    data, named = _on_host(folder, HOST_DATA_DIR, variables), _on_host(weights, HOST_WEIGHTS_DIR, variables)
    if HOST_WEIGHTS_DIR not in variables and weights.is_relative_to(folder):
        named = HostFolder(weights, Path(data.path(weights)))
    return HostFolders(data, volumes, named)


def _on_host(inside: Path, name: str, variables: Mapping[str, str]) -> HostFolder:
    outside = Path(variables[name]) if variables.get(name) else inside
    if not outside.is_absolute():
        raise CliError(f"{name} must be an absolute path of the engine's host; got {variables[name]!r}")
    return HostFolder(inside, outside)


async def container_engine(
    node: str, environment: Mapping[str, str], folders: HostFolders
) -> ContainerEngine:
    """Returns the engine of this host, without the containers of an earlier agent with this data folder; or
    an engine that is absent, with the reason. An engine that does not see the agent's folders counts as
    absent. Raises CliError if the configured paths of the engine's host are wrong."""
    engine = await _connected(environment)
    if engine.facts.name:
        engine = await _prepared(engine, node, folders)
    log.info("container engine: %s", engine.facts.summary)
    return engine


async def late_engine(
    engine: ContainerEngine, node: str, environment: Mapping[str, str], folders: HostFolders
) -> bool:
    """Looks for an engine until one answers, if none did at the agent's start; then makes `engine` that one
    and returns True. An engine that does not see the agent's folders counts as none from then on, and `facts`
    say why."""
    wait_s = LOOK_FIRST_S
    while not engine.facts.name and not engine.facts.elsewhere:
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LOOK_LONGEST_S)
        found = await _connected(environment)
        if found.facts.name:
            engine.adopt(await _prepared_late(found, node, folders))
            log.info("container engine: %s", engine.facts.summary)
            return True
    return False


async def _prepared_late(found: ContainerEngine, node: str, folders: HostFolders) -> ContainerEngine:
    """Prepares the engine as `_prepared` does, but a wrong path does not end the agent, which already runs
    jobs."""
    try:
        return await _prepared(found, node, folders)
    except CliError as error:
        return ContainerEngine(None, EngineFacts(why=str(error), elsewhere=True))


def _connected(environment: Mapping[str, str]) -> asyncio.Future[ContainerEngine]:
    """Connects in a daemon thread."""
    return run_in_thread("look for an engine", lambda: connect(addresses(environment, os.getuid())))


async def _prepared(engine: ContainerEngine, node: str, folders: HostFolders) -> ContainerEngine:
    await _remove_orphans(engine, node)
    return await _seeing(engine, node, folders)


async def _remove_orphans(engine: ContainerEngine, node: str) -> None:
    try:
        left = await engine.remove_all(node)
    except EngineError as error:
        log.warning("containers of an earlier agent may be left: %s", error)
    else:
        if left:
            log.warning("removed %d containers that an earlier agent left", left)


async def _seeing(engine: ContainerEngine, node: str, folders: HostFolders) -> ContainerEngine:
    for name, folder in ((HOST_DATA_DIR, folders.data), (HOST_VOLUME_ROOT, folders.volumes)):
        if folder is None:
            continue
        try:
            async with asyncio.timeout(PROBE_S):
                why = await engine.mount_problem(node, folder.inside, folder.outside)
        except (EngineError, OSError) as error:
            reason = str(error) or f"it has not answered for {PROBE_S:g} s"
            log.warning("whether the engine sees %s is not known: %s", folder.inside, reason)
            continue
        if why is None:
            continue
        await engine.stop()
        if folder.outside != folder.inside:
            raise CliError(f"{name} is wrong: {why}")
        why += f"; {name} names it, where it has another path there"
        return ContainerEngine(None, EngineFacts(why=why, elsewhere=True))
    return engine


@dataclass(frozen=True, slots=True)
class ContainerIsolation:
    """The network and the users of workers in containers, and `facts` for the node's record."""

    network: Network
    users: WorkerUsers
    facts: Mapping[str, str]
    unasked: str = ""
    """Why the network is the host's although nobody asked for that."""

    def warn(self, engine: ContainerEngine) -> None:
        """Logs a warning if containers of this engine are less apart than the operator expects."""
        if self.unasked and engine.facts.name:
            log.warning(
                "workers in containers share this host's network, and reach its services at 127.0.0.1: %s."
                " Give the agent that right (in a container, --cap-add SYS_ADMIN), or set %s=host",
                self.unasked,
                NETWORK,
            )


def container_isolation(
    variables: Mapping[str, str], users: WorkerUsers, node: str, *, root: bool, enters: bool
) -> ContainerIsolation:
    """Decides on the isolation of workers in containers. `users` are those of plain workers; `enters` says
    that the agent may enter the network of a container. Raises CliError."""
    network, why = _network(variables, enters=enters)
    own = _one_of(variables, USER, ("own", "image")) == "own"
    if own and root and not users.other:
        users = WorkerUsers(between=of_containers(node))
    if not own:
        users = WorkerUsers()
    return ContainerIsolation(
        network,
        users,
        {
            "containers_network": f"{network}: {why}" if why else network,
            "containers_user": "own" if users.own else "all the same" if users.other else "the image's",
        },
        unasked=why if network == "host" and NETWORK not in variables else "",
    )


def _network(variables: Mapping[str, str], *, enters: bool) -> tuple[Network, str]:
    """Returns the network, and a reason if it is not the default one."""
    if _one_of(variables, NETWORK, ("bridge", "host")) == "host":
        return "host", f"{NETWORK} says so"
    if enters:
        return "bridge", ""
    lacks = "the agent lacks the right CAP_SYS_ADMIN, with which it reaches workers in their own network"
    if NETWORK in variables:
        raise CliError(f"{NETWORK}=bridge: {lacks}")
    return "host", lacks


def _one_of(variables: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """Returns the setting; the first of those allowed by default."""
    value = variables.get(name) or allowed[0]
    if value not in allowed:
        raise CliError(f"{name} must be {' or '.join(allowed)}; got {value!r}")
    return value


def container_spawner(
    engine: ContainerEngine,
    folders: HostFolders,
    node: str,
    scratch: ScratchFolders,
    variables: Mapping[str, str],
    isolated: ContainerIsolation,
) -> ContainerSpawner:
    isolated.warn(engine)
    limits, network = container_limits(variables), isolated.network
    return ContainerSpawner(
        engine, folders, node, scratch, limits=limits, network=network, users=isolated.users
    )


def pod_containers(
    engine: ContainerEngine,
    images: Images,
    folders: HostFolders,
    node: str,
    devices: tuple[Device, ...],
    variables: Mapping[str, str],
    ports: HostPorts,
) -> PodContainers:
    limits = container_limits(variables)
    return PodContainers(engine, images, node, devices, limits=limits, volumes=folders.volumes, ports=ports)


def container_limits(variables: Mapping[str, str]) -> ContainerLimits:
    memory = _number(variables, MEMORY_MB, 16, 1 << 24)
    cpus = _number(variables, CPUS, 0.01, 4096)
    pids = _number(variables, PIDS, 8, 1 << 22)
    pid_max = int(PID_MAX.read_text())
    return ContainerLimits(
        memory_bytes=None if memory is None else int(memory) << 20,
        cpus=cpus,
        pids=4096 if pids is None else int(pids),
        nofile=_at_most(NOFILE_MAX, resource.RLIMIT_NOFILE),
        nproc=_at_most(pid_max, resource.RLIMIT_NPROC),
    )


def _at_most(value: int, limit: int) -> int:
    _, hard = resource.getrlimit(limit)
    return value if hard == resource.RLIM_INFINITY else min(hard, value)


def _number(variables: Mapping[str, str], name: str, low: float, high: float) -> float | None:
    if name not in variables:
        return None
    try:
        value = float(variables[name])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise CliError(f"{name} must be a number from {low} to {high}; got {variables[name]!r}")
    return value
