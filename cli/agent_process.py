"""The agent process: composes the node agent with its real parts and runs it until it is told to stop.

It holds no object store credentials and no API key. What it keeps lies in its data folder: the node's id
(stable over restarts), the outbox, the attempts' scratch folders. It is ready when control has taken its
first call; control may still refuse its join token, and then it ends with control's sentence.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom

import uvloop

import stoker
from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_plan import facts as container_facts
from stoker.agent.container_spawner import Contained, ContainerSpawner
from stoker.agent.devices import NvmlSampler
from stoker.agent.files import ScratchFolders
from stoker.agent.grpc_stream import connect
from stoker.agent.local_process import LocalSpawner
from stoker.agent.node import Agent, AgentSettings
from stoker.agent.objects import S3Objects
from stoker.agent.outbox_disk import OutboxFile
from stoker.agent.protocol_worker import ByKind, ProtocolSpawner, Starter
from stoker.agent.seams import Spawner, WorkerProcess, WorkerWatcher
from stoker.agent.worker_memory import WorkerMemory
from stoker.agent.zygotes import ZygoteSpawner
from stoker.cli.agent_containers import HOST_DATA_DIR, container_engine, container_limits
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
    user = worker_user(options.worker_user, folder)
    async with held_at_last(folder / "agent.lock", f"another agent is running on {folder}"):
        sampler = NvmlSampler()  # first: what it raises must find nothing open
        rng, objects = SystemRandom(), S3Objects()
        node = node_id(folder)
        engine = await container_engine(node, os.environ)
        settings = AgentSettings(
            node=node,
            name=options.name or socket.gethostname(),
            join_token=options.join_token,
            agent_version=stoker.__version__,
            facts=container_facts(engine.facts),
            grace_s=options.grace_s,
        )
        first = _AnnounceOnce(connector(options), sampler.inventory(), options.ready_fd)
        agent = Agent(
            settings,
            first,
            spawner(folder, user, node, engine, given),
            objects,
            sampler,
            ScratchFolders(folder / "scratch", user),
            OutboxFile(folder / "outbox"),
            rng,
            boottime,
            WorkerMemory(sampler).measure,
        )
        try:
            with on_first_signal(agent.stop):
                await agent.run()
        finally:
            await objects.close()


def spawner(
    folder: Path, user: tuple[int, int] | None, node: str, engine: ContainerEngine, given: Mapping[str, str]
) -> Spawner:
    """Of this host's environment only plain processes are told: a container sees none of its folders."""
    local = LocalSpawner(folder, user=user)
    containers = ContainerSpawner(
        engine,
        folder,
        node,
        folder / "scratch",
        limits=container_limits(given),
        user=user,
        host_folder=Path(given[HOST_DATA_DIR]) if HOST_DATA_DIR in given else None,
    )
    plain = ByKind(ZygoteSpawner(local), _serving(local))
    return Contained(_OnThisHost(plain, host_environment(given)), containers, _serving(containers))


def _serving(starter: Starter) -> Callable[[], Spawner]:
    def serving_protocol() -> Spawner:
        from stoker.agent.protocol_server import ProtocolServer

        return ProtocolSpawner(starter, ProtocolServer())

    return serving_protocol


def host_environment(given: Mapping[str, str]) -> dict[str, str]:
    """What workers are told of this host. Their HOME is a folder of their own, so a cache must be named."""
    return {WEIGHTS_DIR: given.get(WEIGHTS_DIR) or str(weights_folder().absolute())}


def worker_user(name: str | None, folder: Path) -> tuple[int, int] | None:
    """Uid and gid that workers run as; None: our own. The user must be able to pass into `folder`."""
    if name is None:
        return None
    if os.geteuid() != 0:
        raise CliError(f"only root can run workers as another user ({name})")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise CliError(f"there is no user {name} on this host") from None
    folder.chmod(0o711)
    for above in folder.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            raise CliError(
                f"workers run as {name}, who may not pass through {above}: chmod o+x it, or"
                " give another --data-dir"
            )
    _try_to_run_as(name, (entry.pw_uid, entry.pw_gid))
    return entry.pw_uid, entry.pw_gid


def _try_to_run_as(name: str, user: tuple[int, int]) -> None:
    """Better now, in a sentence, than in every job: an interpreter below /root is nobody else's."""
    source = str(Path(stoker.__file__).parents[1])
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", "import stoker.worker"],
            env={"PYTHONPATH": source},
            cwd="/",
            user=user[0],
            group=user[1],
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CliError(
            f"workers run as {name}, who cannot run {sys.executable} with {source}: {error}"
        ) from None


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
