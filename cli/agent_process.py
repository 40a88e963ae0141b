"""The agent process: composes the node agent with its real parts and runs it until it is told to stop.

It holds no object store credentials and no API key. What it keeps lies in its data folder: the node's id
(stable over restarts), the outbox, the attempts' scratch folders. It is ready when control has taken its
first call; control may still refuse its join token, and then it ends with control's sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom

import uvloop

import stoker
from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_plan import facts as container_facts
from stoker.agent.container_spawner import PRINTED_LATE_S, Contained, ContainerSpawner
from stoker.agent.devices import NvmlSampler
from stoker.agent.files import ScratchFolders
from stoker.agent.grpc_stream import connect
from stoker.agent.keeping import Keeping
from stoker.agent.local_process import LocalSpawner
from stoker.agent.node import Agent, AgentSettings
from stoker.agent.objects import S3Objects
from stoker.agent.outbox_disk import OutboxFile
from stoker.agent.pod_marks import MarksFile
from stoker.agent.protocol_worker import ByKind, ProtocolSpawner, Starter
from stoker.agent.seams import Spawner, WorkerProcess, WorkerWatcher
from stoker.agent.volume_folders import FoldersOnDisk
from stoker.agent.worker_memory import WorkerMemory
from stoker.agent.zygotes import ZygoteSpawner
from stoker.cli.agent_containers import (
    Shown,
    container_engine,
    container_spawner,
    late_engine,
    pod_containers,
    shown,
)
from stoker.cli.agent_inputs import input_cache
from stoker.cli.agent_isolation import Isolation, isolation, volume_root, worker_user, worker_users
from stoker.cli.agent_place import place_facts, public_ip_fact
from stoker.cli.data_folder import held_at_last, write_private
from stoker.cli.errors import CliError
from stoker.cli.readiness import announce
from stoker.cli.stopping import on_first_signal
from stoker.models.weights import weights_folder
from stoker.wire.messages import Device, WorkerSpec
from stoker.wire.names import short_id
from stoker.wire.streams import AgentStream

log = logging.getLogger(__name__)

WEIGHTS_DIR = "STOKER_WEIGHTS_DIR"
GRACE_S = 30.0
"""What running jobs get to end by themselves after SIGTERM."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    control: str
    join_token: str = field(repr=False)
    data_dir: Path
    name: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ready_fd: int | None = None
    worker_user: str | None = None
    worker_users: str | None = None
    volume_root: Path | None = None
    data_center: str | None = None
    public_ip: str | None = None
    labels: tuple[str, ...] = ()
    grace_s: float = GRACE_S


def run(options: AgentOptions, given: Mapping[str, str]) -> None:
    """`given` are the STOKER_ variables that came with the environment."""
    uvloop.run(run_agent(options, given))


def boottime() -> float:
    """Goes on while the host sleeps: a lease does too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def run_agent(options: AgentOptions, given: Mapping[str, str]) -> None:
    folder = options.data_dir.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.worker_user is not None and options.worker_users is not None:
        raise CliError("workers run as --worker-user, or each as one of --worker-users: give one of the two")
    user, user_range = worker_user(options.worker_user, folder), worker_users(options.worker_users, folder)
    volumes = volume_root(options.volume_root, given)
    async with held_at_last(folder / "agent.lock", f"another agent is running on {folder}"):
        sampler = NvmlSampler()  # first: what it raises must find nothing open
        place = place_facts(options.data_center, options.labels, sampler, given)
        place |= public_ip_fact(options.public_ip, given)
        rng, objects, inputs = SystemRandom(), S3Objects(), input_cache(folder, given)
        node = node_id(folder)
        seen = shown(folder, volumes, given)
        engine = await container_engine(node, os.environ, seen)
        shut = isolation(folder, given, user=user, user_range=user_range, volume_root=volumes)
        keeping = Keeping(None if shut.cgroups is None else shut.cgroups.path, user_range)
        settings = AgentSettings(
            node=node,
            name=options.name or socket.gethostname(),
            join_token=options.join_token,
            agent_version=stoker.__version__,
            facts={**place, **container_facts(engine.facts), **shut.facts},
            grace_s=options.grace_s,
        )
        scratch = ScratchFolders(folder / "scratch", shut.users)
        containers = container_spawner(engine, seen, node, scratch, given, shut.users)
        pods = pod_containers(engine, containers.images, seen, node, sampler.inventory(), given)
        kept_volumes = None if volumes is None else FoldersOnDisk(volumes)
        first = _AnnounceOnce(connector(options), sampler.inventory(), options.ready_fd)
        agent = Agent(
            settings,
            first,
            spawner(folder, shut, containers, given),
            objects,
            sampler,
            scratch,
            OutboxFile(folder / "outbox"),
            rng,
            boottime,
            WorkerMemory(sampler).measure,
            inputs,
            time.time,
            pods,
            MarksFile(folder / "pods.json"),
            kept_volumes,
        )
        looking = asyncio.create_task(_tell_of_late_engine(agent, engine, seen), name="late engine")
        try:
            with on_first_signal(agent.stop):
                await agent.run()
        finally:
            looking.cancel()
            if kept_volumes is not None:
                kept_volumes.close()
            keeping.stop()
            await inputs.close()
            await objects.close()


async def _tell_of_late_engine(agent: Agent, engine: ContainerEngine, seen: Shown) -> None:
    if await late_engine(engine, agent.settings.node, os.environ, seen):
        agent.learn(container_facts(engine.facts))


def spawner(folder: Path, shut: Isolation, containers: ContainerSpawner, given: Mapping[str, str]) -> Spawner:
    """Of this host's environment only plain processes are told: a container sees none of its folders."""
    environment = host_environment(given)
    local = LocalSpawner(
        folder,
        users=shut.users,
        host=shut.host,
        cgroups=shut.cgroups,
        writable=[Path(environment[WEIGHTS_DIR])],
    )
    plain = ByKind(ZygoteSpawner(local), _serving(local))
    return Contained(_OnThisHost(plain, environment), containers, _serving(containers, PRINTED_LATE_S))


def _serving(starter: Starter, late_s: float = 0.0) -> Callable[[], Spawner]:
    def serving_protocol() -> Spawner:
        from stoker.agent.protocol_server import ProtocolServer

        return ProtocolSpawner(starter, ProtocolServer(), late_s)

    return serving_protocol


def host_environment(given: Mapping[str, str]) -> dict[str, str]:
    """What workers are told of this host. Their HOME is a folder of their own, so a cache must be named."""
    return {WEIGHTS_DIR: given.get(WEIGHTS_DIR) or str(weights_folder().absolute())}


class _OnThisHost:
    """A spawner that adds this host's environment; what the endpoint declares wins."""

    def __init__(self, spawner: Spawner, environment: Mapping[str, str]) -> None:
        self._spawner, self._environment = spawner, environment

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        return self._spawner.spawn(replace(spec, env={**self._environment, **spec.env}), device, watcher)

    async def close(self) -> None:
        await self._spawner.close()


def node_id(folder: Path) -> str:
    """Drawn at the first start. Two agents with a copy of one folder are told apart by control."""
    path = folder / "node_id"
    if not path.exists():
        write_private(path, short_id(SystemRandom()) + "\n")
    found = path.read_text(encoding="utf-8").strip()
    if not found:
        raise CliError(f"{path} is empty; remove it and a new id is drawn")
    return found


def connector(options: AgentOptions) -> Callable[[], Awaitable[AgentStream]]:
    """Reads the TLS files at each connect: a renewed certificate is used from the next one on."""

    async def connect_once() -> AgentStream:
        return await connect(
            options.control,
            ca=_read(options.tls_ca),
            cert=_read(options.tls_cert),
            key=_read(options.tls_key),
        )

    if (options.tls_cert is None) != (options.tls_key is None):
        raise CliError("a certificate of the agent's own needs both --tls-cert and --tls-key")
    return connect_once


def _read(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()


class _AnnounceOnce:
    """Connects, and says after the first time that this part is ready."""

    def __init__(
        self, connect: Callable[[], Awaitable[AgentStream]], devices: Sequence[Device], fd: int | None
    ) -> None:
        self._connect, self._devices, self._fd = connect, devices, fd
        self._said = False

    async def __call__(self) -> AgentStream:
        stream = await self._connect()
        if not self._said:
            self._said = True
            names = ", ".join(f"{device.name} ({device.kind})" for device in self._devices)
            announce({"devices": names}, self._fd)
            log.info("connected; devices: %s", names)
        return stream
