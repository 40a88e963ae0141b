"""The agent process: creates the node agent with its parts and runs it until a signal stops it.

It has no credentials of the object store and no API key. Its data folder holds the node's id (stable over
restarts), the credential that it got when it joined, the outbox, and the attempts' scratch folders. It is
ready when its first session has begun; if control refuses it, it ends with control's message.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import uvloop
from msgspec.structs import replace

import stoker
from stoker.agent.host.devices.devices import NvmlSampler
from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import may_enter
from stoker.agent.host.process_tree.memory import WorkerMemory
from stoker.agent.host.process_tree.reaper_supervisor import ReaperSupervisor
from stoker.agent.host.sandbox.isolation import AS_ROOT
from stoker.agent.host.storage.disk_facts import disk_facts
from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.host.storage.volume_folders import FoldersOnDisk
from stoker.agent.host.storage.volume_watch import NoVolumes
from stoker.agent.interfaces import Spawner, WorkerProcess, WorkerWatcher
from stoker.agent.jobs.reports.outbox_file import OutboxFile
from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.agent.node import Agent, AgentParts, AgentSettings
from stoker.agent.pods.marks import MarksFile
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.plan import facts as container_facts
from stoker.agent.workers.containers.spawner import (
    PRINTED_LATE_S,
    ContainerSpawner,
    HostFolders,
    SpawnerByImage,
)
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.tunnel import TunnelToControl
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.agent.workers.processes.by_kind import ProgramSpawner, SpawnerByKind
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.cli.agent.containers import (
    container_engine,
    container_isolation,
    container_spawner,
    host_folders,
    late_engine,
    pod_containers,
)
from stoker.cli.agent.controls import ConnectionOptions, Controls, NodeCredential
from stoker.cli.agent.gateway import Gateways, gateway_at, open_gateways
from stoker.cli.agent.inputs import input_cache
from stoker.cli.agent.isolation import Isolation, isolation, volume_root, worker_user, worker_users
from stoker.cli.agent.location import location_facts, public_ip_fact
from stoker.cli.agent.reclaims import check_cloud, until_taken_back, watch_for_reclaim
from stoker.cli.agent.weights import weights_cache
from stoker.cli.daemons.options import AgentOptions
from stoker.cli.data_folder import locked_after_wait, write_private
from stoker.cli.errors import CliError
from stoker.cli.log_lines import note_node
from stoker.cli.processes.readiness import announce, send_line
from stoker.cli.processes.stopping import on_first_signal
from stoker.models.weights_paths import LOCK, WEIGHTS_DIR, weights_folder
from stoker.wire.ids import short_id
from stoker.wire.messages import Device, WorkerSpec, WorkerState

log = logging.getLogger(__name__)

LOG_TAIL_MAX_BYTES, REASON_MAX_CHARACTERS = 1_024, 300
"""The limits of a worker's last lines and of its reason in a report, so that the report fits in a pipe."""


def run(options: AgentOptions, variables: Mapping[str, str]) -> None:
    """Runs the agent until it is stopped. `variables` are the STOKER_ variables of the environment."""
    uvloop.run(run_agent(options, variables))


def _connection(options: AgentOptions) -> ConnectionOptions:
    return ConnectionOptions(
        options.control,
        options.data_dir.absolute(),
        options.tls_ca,
        options.tls_cert,
        options.tls_key,
        options.ca_fingerprint,
        insecure=options.insecure,
    )


def boottime() -> float:
    """Returns the time of a clock that also runs while the host sleeps, as a lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def run_agent(options: AgentOptions, variables: Mapping[str, str]) -> None:
    folder = options.data_dir.absolute()
    credential = NodeCredential(folder, options.join_token)
    controls = Controls(_connection(options), credential)
    credential.token()  # raises now if there is none
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.worker_user is not None and options.worker_users is not None:
        raise CliError("workers run as --worker-user, or each as one of --worker-users: give one of the two")
    check_cloud(options.reclaim_notices)
    volumes = volume_root(options.volume_root, variables)
    gateway = gateway_at(options.gateway_listen, options.gateway_advertise, variables)
    async with locked_after_wait(folder / "agent.lock", f"another agent is running on {folder}"):
        note_node(node := node_id(folder))
        user = worker_user(options.worker_user, folder)
        user_range = worker_users(options.worker_users, folder)
        sampler = NvmlSampler()  # first: nothing is open yet if it raises
        facts = location_facts(options.data_center, options.labels, sampler, variables)
        facts |= public_ip_fact(options.public_ip, variables)
        isolated = isolation(folder, variables, user=user, user_range=user_range, volume_root=volumes)
        ports = WorkerPorts(HostPorts(), isolated.http_ports)
        relay = Relay(ports)
        gateways = await open_gateways(relay, gateway, folder, here=controls.stay_here)
        rng, signing, inputs = SystemRandom(), SigningRequests(), input_cache(folder, variables)
        objects = S3Objects(signing)
        listener = _probes_listener(options.probes)
        mounted = host_folders(folder, volumes, weights_path(variables), variables)
        engine = await container_engine(node, os.environ, mounted)
        contained = container_isolation(
            variables, isolated.users, node, root=isolated.host.root, enters=may_enter()
        )
        supervisor = ReaperSupervisor(None if isolated.cgroups is None else isolated.cgroups.path, user_range)
        facts |= {**container_facts(engine.facts), **contained.facts, **isolated.facts}
        settings = _settings(options, node, facts, gateways)
        scratch = ScratchFolders(folder / "scratch", isolated.users)
        containers = container_spawner(engine, mounted, node, scratch, variables, contained)
        pods = pod_containers(
            engine, containers.images, mounted, node, sampler.inventory(), variables, ports.host
        )
        volume_folders = None if volumes is None else FoldersOnDisk(volumes)
        announced = _AnnounceOnce(
            sampler.inventory(), options.ready_fd, AS_ROOT if isolated.host.as_root else ""
        )
        parts = AgentParts(
            connect=controls.connect,
            after_session=controls.after_session,
            spawner=spawner(folder, isolated, containers, ports, variables),
            objects=objects,
            sampler=sampler,
            scratch=scratch,
            outbox_disk=OutboxFile(folder / "outbox"),
            disk_facts=lambda: disk_facts(folder) | controls.facts(),
            rng=rng,
            inputs=inputs,
            pods=pods,
            pod_marks=MarksFile(folder / "pods.json"),
            volumes=volume_folders or NoVolumes(),
            weights=weights_cache(weights_path(variables), settings.name, variables, os.environ),
            sources=SourceFolders(folder / "sources"),
            signing=signing,
            measure=WorkerMemory(sampler).measure,
            boottime=boottime,
            wall=time.time,
            on_worker=partial(_report_worker, options.ready_fd),
            keep_credential=credential.keep,
            certificates=controls.certificates,
            proof=controls.proof,
            on_welcome=announced,
            tunnel=TunnelToControl(relay).run,
        )
        agent = Agent(settings, parts)
        try:
            beside = _beside(agent, engine, mounted, listener, options.reclaim_notices)
            await _run_until_signal(agent, beside, controls.check_files)
        finally:
            if volume_folders is not None:
                volume_folders.close()
            supervisor.stop()
            await gateways.close()
            await relay.close()
            isolated.close()
            await inputs.close()
            await objects.close()


def _report_worker(fd: int | None, worker: WorkerState) -> None:
    """Reports an unhealthy or ready worker to the parent process, which prints it at its terminal."""
    if fd is None or worker.state not in ("unhealthy", "ready"):
        return
    log_tail = "\n".join(worker.log_tail).encode()[-LOG_TAIL_MAX_BYTES:].decode(errors="replace")
    report = {
        "endpoint": worker.endpoint,
        "version": worker.version,
        "worker": worker.worker,
        "state": worker.state,
    }
    send_line({**report, "reason": worker.reason[:REASON_MAX_CHARACTERS], "log": log_tail.splitlines()}, fd)


def _settings(options: AgentOptions, node: str, facts: dict[str, str], gateways: Gateways) -> AgentSettings:
    return AgentSettings(
        node=node,
        name=options.name or socket.gethostname(),
        agent_version=stoker.__version__,
        facts={**facts, "agent_version": stoker.__version__},
        gateway=gateways.local,
        direct=gateways.direct,
        grace_s=options.grace_s,
    )


def _probes_listener(address: str | None) -> socket.socket | None:
    if address is None:
        return None  # and no HTTP server is imported
    from stoker.cli.agent.probes import probes_listener

    return probes_listener(address)


async def _run_until_signal(
    agent: Agent, beside: Coroutine[Any, Any, None], reload: Callable[[], object]
) -> None:
    """Runs the agent until a signal stops it, or it has left a host that is taken back."""
    stopped = asyncio.Event()

    def stop() -> None:
        agent.stop()
        stopped.set()

    with on_first_signal(stop, reload):
        await _run_beside(agent, beside)
        await until_taken_back(agent, stopped)


async def _run_beside(agent: Agent, other: Coroutine[Any, Any, None]) -> None:
    """Runs the agent until it ends, and `other` until then."""
    beside = asyncio.create_task(other, name="beside the agent")
    try:
        await agent.run()
    finally:
        beside.cancel()


async def _beside(
    agent: Agent,
    engine: ContainerEngine,
    mounted: HostFolders,
    listener: socket.socket | None,
    cloud: str | None,
) -> None:
    """Looks for an engine, serves probes and watches for notices where they are wanted, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        if cloud is not None:
            tasks.create_task(watch_for_reclaim(agent, cloud), name="reclaim notices")
        tasks.create_task(_report_late_engine(agent, engine, mounted), name="late engine")
        if listener is not None:
            from stoker.cli.agent.probes import serve_probes

            tasks.create_task(serve_probes(agent, listener), name="probes")


async def _report_late_engine(agent: Agent, engine: ContainerEngine, mounted: HostFolders) -> None:
    if await late_engine(engine, agent.settings.node, os.environ, mounted):
        agent.learn(container_facts(engine.facts))


def spawner(
    folder: Path,
    isolated: Isolation,
    containers: ContainerSpawner,
    ports: WorkerPorts,
    variables: Mapping[str, str],
) -> Spawner:
    """Returns the spawner of all kinds of workers. Only plain processes get this host's environment: a
    container has none of the host's folders."""
    environment = host_environment(variables)
    local = LocalSpawner(
        folder,
        users=isolated.users,
        host=isolated.host,
        cgroups=isolated.cgroups,
        writable=[Path(environment[WEIGHTS_DIR])],
    )
    plain = SpawnerByKind(ZygoteSpawner(local), **_programs(local, ports))
    contained = SpawnerByKind(containers, **_programs(containers, ports, PRINTED_LATE_S))
    return SpawnerByImage(_OnThisHost(plain, environment), contained)


def _programs(
    programs: ProgramSpawner, ports: WorkerPorts, late_s: float = 0.0
) -> dict[str, Callable[[], Spawner]]:
    """Returns the functions that make the spawner of each kind of program."""

    def serving_protocol() -> Spawner:
        from stoker.agent.workers.sdk_programs.server import ProtocolServer
        from stoker.agent.workers.sdk_programs.worker import ProtocolSpawner

        return ProtocolSpawner(programs, ProtocolServer(), late_s)

    def serving_http() -> Spawner:
        from stoker.agent.workers.http_servers.worker import HttpSpawner

        return HttpSpawner(programs, ports)

    return {"protocol": serving_protocol, "http": serving_http}


def host_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the host's variables for workers. Their HOME is a folder of their own, so they need the cache's
    path."""
    found = {WEIGHTS_DIR: str(Path(variables.get(WEIGHTS_DIR) or weights_folder()).absolute())}
    if lock := variables.get(LOCK):
        found[LOCK] = str(Path(lock).absolute())
    return found


def weights_path(variables: Mapping[str, str]) -> Path:
    return Path(host_environment(variables)[WEIGHTS_DIR]).absolute()


class _OnThisHost:
    """A spawner that adds this host's environment; the endpoint's own variables have priority."""

    def __init__(self, spawner: Spawner, environment: Mapping[str, str]) -> None:
        self._spawner, self._environment = spawner, environment

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        return self._spawner.spawn(replace(spec, env={**self._environment, **spec.env}), device, watcher)

    async def close(self) -> None:
        await self._spawner.close()


def node_id(folder: Path) -> str:
    """Returns the node's id, created at the first start. Control detects two agents with copies of one
    folder."""
    path = folder / "node_id"
    if not path.exists():
        write_private(path, short_id(SystemRandom()) + "\n")
    found = path.read_text(encoding="utf-8").strip()
    if not found:
        raise CliError(f"{path} is empty; remove it, and a new id is created")
    return found


class _AnnounceOnce:
    """The announcement that the agent is ready, made when its first session begins."""

    def __init__(self, devices: Sequence[Device], fd: int | None, warning: str) -> None:
        self._devices, self._fd, self._warning = devices, fd, warning
        self._done = False

    def __call__(self) -> None:
        if self._done:
            return
        self._done = True
        names = ", ".join(f"{device.name} ({device.kind})" for device in self._devices)
        kinds = " ".join(sorted({device.kind for device in self._devices}))
        facts = {"devices": names, "kinds": kinds, "warning": self._warning}
        announce(facts, self._fd, more=True)
        log.info("connected; devices: %s", names)
