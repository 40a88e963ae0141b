"""Plans a worker's container, decides whether this node can run it, and describes how it ended.

Pure: takes facts of the node and a WorkerSpec, returns a ContainerPlan or a reason for refusing it.
`agent.workers.containers.requests` turns a ContainerPlan into a request to docker or podman.

- A python worker gets the worker package (read-only), the folder of its frame socket, and its scratch folder
  under the same path as on the node, because the agent checks the paths of the files that it hands over.
- A worker with weights gets the folder of weights, read-only, and its path in STOKER_WEIGHTS_DIR.
- A protocol worker gets its environment and reaches the agent's worker protocol on the node's loopback.
- Each container is on the engine's bridge, with a loopback of its own, where programs and the agent call
  each other (`agent.host.own_network`); or on the node's network, if the operator says so.
- A worker runs as the user that the agent gave it. An image that names a user other than root keeps that
  one, except for a python worker, whose files are the agent's.
- Process 1 is the engine's init: a program that is process 1 itself would not receive SIGTERM.
- GPUs are requested by CDI name only. What an engine would silently leave out is refused.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.host.storage.volumes import MOUNT_POINT, VOLUME_PATH
from stoker.agent.workers.processes.exit_reasons import describe_exit
from stoker.wire.messages import Device, WorkerLimits, WorkerSpec

AGENT_LABEL, WORKER_LABEL, POD_LABEL = "stoker.agent", "stoker.worker", "stoker.pod"
INSIDE = "/stoker"
NVIDIA_RUNTIME = "NVIDIA_VISIBLE_DEVICES"
SOCKET = "frames.sock"
Network = Literal["bridge", "host"]
HOME = ("HOME", "/tmp")
"""The home of a worker whose user no image knows: the engine would take /, where that user may not write."""

WEIGHTS_DIR, WEIGHTS = "STOKER_WEIGHTS_DIR", "/stoker-weights"
"""The variable with the path of the weights, and where they are in a container."""
IMAGE_ID = "STOKER_IMAGE_ID"
"""The variable with the image's id, for the case of a job: a name may mean another image tomorrow."""
DOCKER_WITH_CDI = 25
PODMAN_WITH_CDI = 4


class EngineFacts(Struct, frozen=True):
    """The facts about the container engine.

    cdi        whether devices can be requested by CDI name
    why        why there is no engine; empty if there is one
    elsewhere  there is an engine, but it does not see the agent's folders
    """

    name: str = ""
    version: str = ""
    cdi: bool = False
    why: str = ""
    elsewhere: bool = False

    @property
    def summary(self) -> str:
        return f"{self.name} {self.version}" if self.name else f"none: {self.why}"


class ContainerLimits(Struct, frozen=True):
    """The limits of each container; None means no limit. `nproc` is set to what the host allows, because
    podman's default of a million processes may exceed it."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int = 4096
    nofile: int = 4096
    nproc: int | None = None

    def of(self, limits: WorkerLimits | None) -> ContainerLimits:
        """Returns the endpoint's limits, with the node's where the endpoint sets none."""
        if limits is None:
            return self
        return replace(
            self,
            memory_bytes=self.memory_bytes if limits.memory_bytes is None else limits.memory_bytes,
            cpus=self.cpus if limits.cpus is None else limits.cpus,
            pids=self.pids if limits.pids is None else limits.pids,
            nofile=self.nofile if limits.files is None else limits.files,
        )


class HostPaths(Struct, frozen=True):
    """Paths on the engine's host, but for `scratch`, which is the agent's path of `scratch_source`. `volume`
    and `weights` are empty if the endpoint has none."""

    agent: str
    frames: str
    package: str
    scratch: str
    scratch_source: str
    volume: str = ""
    user: tuple[int, int] | None = None
    groups: tuple[int, ...] = ()
    weights: str = ""


class Bind(Struct, frozen=True):
    source: str
    target: str
    read_only: bool


class ContainerPlan(Struct, frozen=True):
    """A container, independent of the engine. None means the image's own value. `devices` are CDI names.

    network      "bridge", or "host" for the node's own
    unless_named an image that names a user of its own keeps it
    """

    image: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    limits: ContainerLimits
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    user: str | None = None
    groups: tuple[int, ...] = ()
    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    network: Network = "bridge"
    unless_named: bool = False


def with_user_of(image_user: str, made: ContainerPlan) -> ContainerPlan:
    """Returns the plan for an image that declares this user: it keeps one that is not root."""
    if not made.unless_named or image_user.partition(":")[0] in ("", "0", "root"):
        return made
    environment = {name: value for name, value in made.environment.items() if (name, value) != HOME}
    return replace(made, user=None, environment=environment)


def facts(engine: EngineFacts) -> dict[str, str]:
    """Returns the engine's facts for the node's record."""
    return {"containers": engine.summary, "containers_cdi": "yes" if engine.cdi else "no"}


def refusal(engine: EngineFacts, image: str, device: Device | None) -> str | None:
    """Returns why this node cannot run the image, or None if it can."""
    if not engine.name:
        return f"image {image} needs a container engine; this node has none: {engine.why}"
    if not is_gpu(device) or engine.cdi:
        return None
    need = {
        "docker": f"docker {DOCKER_WITH_CDI} or newer with CDI switched on",
        "podman": f"podman {PODMAN_WITH_CDI} or newer",
    }[engine.name]
    return f"GPUs come into containers by CDI, which needs {need}; this node has {engine.summary}"


def major(version: str) -> int:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0


def plan(
    spec: WorkerSpec,
    device: Device | None,
    image: str,
    environment: Mapping[str, str],
    paths: HostPaths,
    limits: ContainerLimits,
    network: Network = "bridge",
) -> ContainerPlan:
    """Plans the container. `environment` holds the variables that the kind of worker adds; `limits` and
    `network` are the node's."""
    first = ({WEIGHTS_DIR: WEIGHTS} if paths.weights else {}) | ({} if paths.user is None else dict([HOME]))
    made = ContainerPlan(
        image,
        {**first, **_environment(spec, device, image, environment)},
        {AGENT_LABEL: paths.agent, WORKER_LABEL: spec.worker},
        limits.of(spec.limits),
        binds=_binds(spec, paths),
        devices=tuple(map(cdi_name, spec.devices)) if is_gpu(device) else (),
        user=None if paths.user is None else f"{paths.user[0]}:{paths.user[1]}",
        groups=paths.groups,
        network=network,
    )
    if spec.kind != "python":
        kept = paths.user is not None
        entrypoint, command = spec.entrypoint or None, spec.command or None
        return replace(made, entrypoint=entrypoint, command=command, unless_named=kept)
    return replace(made, entrypoint=_python_command(spec.command), command=(), user=made.user or "0:0")


def _python_command(interpreter: Sequence[str]) -> tuple[str, ...]:
    module = ("-P", "-m", "stoker.worker.runtime", "--connect", f"{INSIDE}/{SOCKET}")
    return *(interpreter or ("python",)), *module


def _environment(
    spec: WorkerSpec, device: Device | None, image: str, added: Mapping[str, str]
) -> dict[str, str]:
    """Returns the container's variables. Only a container without GPUs gets CUDA_VISIBLE_DEVICES: CDI adds no
    GPU but those that were requested. "void" stops NVIDIA's runtime, if that is the engine's default, from
    adding all GPUs because the image requests them."""
    last = {NVIDIA_RUNTIME: "void"} | ({} if is_gpu(device) else {"CUDA_VISIBLE_DEVICES": ""})
    if spec.volume:
        last[VOLUME_PATH] = MOUNT_POINT
    if spec.kind != "python":
        return {**added, **last}
    declared = {**spec.env, **added}
    search = [f"{INSIDE}/package", *filter(None, [declared.pop("PYTHONPATH", "")])]
    return {**declared, "PYTHONPATH": ":".join(search), IMAGE_ID: image, **last}


def _binds(spec: WorkerSpec, paths: HostPaths) -> tuple[Bind, ...]:
    shared = (Bind(paths.volume, MOUNT_POINT, read_only=False),) if spec.volume else ()
    if paths.weights:
        shared = (*shared, Bind(paths.weights, WEIGHTS, read_only=True))
    if spec.kind != "python":
        return shared
    return (
        Bind(paths.frames, INSIDE, read_only=True),
        Bind(paths.package, f"{INSIDE}/package", read_only=True),
        Bind(paths.scratch_source, paths.scratch, read_only=False),
        *shared,
    )


def is_gpu(device: Device | None) -> bool:
    return device is not None and device.kind != "cpu"


def cdi_name(uuid: str) -> str:
    return f"nvidia.com/gpu={uuid}"


# -- its end


class ContainerExit(Struct, frozen=True):
    """The end of a container, as the engine reports it."""

    code: int
    oom_killed: bool = False
    error: str = ""


def describe_container_exit(
    ended: ContainerExit, killed: str | None, *, terminated: bool, memory_bytes: int | None
) -> tuple[int, str]:
    """Returns the exit status in subprocess's form, and the reason. Engines report an end by signal n as
    128 + n."""
    status = _status(ended.code)
    if (
        killed is None
        and status != 0
        and (ended.oom_killed or (status == -signal.SIGKILL and memory_bytes is not None))
    ):
        sure = "killed: out of memory" if ended.oom_killed else "killed, likely out of memory"
        limit = f" (limit {memory_bytes >> 20} MiB)" if memory_bytes is not None else ""
        return status, f"{sure}{limit}"
    if ended.error:
        return status, f"the container did not run: {ended.error}"
    return status, describe_exit(status, killed, terminated=terminated)


def _status(code: int) -> int:
    number = code - 128
    return -number if 0 < number < signal.NSIG else code
