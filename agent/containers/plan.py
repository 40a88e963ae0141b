"""What a worker's container is made of, when it is refused, and why it ended.

Pure: facts of the node and a WorkerSpec in; a Plan, or a sentence, out. `agent.container_requests` says a
Plan in the words of each engine.

- A python worker gets the worker package (read-only), the folder of its frame socket, and its own scratch
  folder under the very path that it has on the node: the agent judges a handed-over file by where it lies.
- A protocol worker gets its environment, and reaches the agent's worker protocol on the node's loopback. For
  that the container shares the node's network, of both kinds; a network of its own is not offered yet.
- Its own process 1 is the engine's small init: a program that is process 1 itself would hear no SIGTERM.
- GPUs come by CDI names only. What an engine would quietly leave out is refused.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stoker.agent.exit_words import exit_words
from stoker.agent.volumes import MOUNT_POINT, VOLUME_PATH
from stoker.wire.messages import Device, WorkerLimits, WorkerSpec

AGENT_LABEL, WORKER_LABEL, POD_LABEL = "stoker.agent", "stoker.worker", "stoker.pod"
INSIDE = "/stoker"
NVIDIA_RUNTIME = "NVIDIA_VISIBLE_DEVICES"
SOCKET = "frames.sock"
DOCKER_WITH_CDI = 25
PODMAN_WITH_CDI = 4


@dataclass(frozen=True, slots=True)
class Engine:
    """`cdi`: whether devices can be asked for by CDI names. `why` there is no engine, where there is none;
    `elsewhere`: there is one, but what it sees are no folders of this agent's."""

    name: str = ""
    version: str = ""
    cdi: bool = False
    why: str = ""
    elsewhere: bool = False

    @property
    def words(self) -> str:
        return f"{self.name} {self.version}" if self.name else f"none: {self.why}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each container. None: no limit of its own. `nproc` is what an engine may surely give:
    podman asks for a million where it is told nothing, and may not get them."""

    memory: int | None = None
    cpus: float | None = None
    pids: int = 4096
    nofile: int = 4096
    nproc: int | None = None

    def of(self, asked: WorkerLimits | None) -> Limits:
        """The endpoint's own limits, and the node's for those that it does not name."""
        if asked is None:
            return self
        return replace(
            self,
            memory=self.memory if asked.memory_bytes is None else asked.memory_bytes,
            cpus=self.cpus if asked.cpus is None else asked.cpus,
            pids=self.pids if asked.pids is None else asked.pids,
            nofile=self.nofile if asked.files is None else asked.files,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where things lie on the engine's host; `scratch` is the agent's own path of `scratch_source`. `volume`
    is empty where the endpoint has none."""

    agent: str
    frames: str
    package: str
    scratch: str
    scratch_source: str
    volume: str = ""
    user: tuple[int, int] = (0, 0)
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A container, whatever the engine. None: the image's own. `devices` are CDI names."""

    image: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    limits: Limits
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    user: str | None = None
    groups: tuple[int, ...] = ()
    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()


def facts(engine: Engine) -> dict[str, str]:
    """For the node's record."""
    return {"containers": engine.words, "containers_cdi": "yes" if engine.cdi else "no"}


def refusal(engine: Engine, image: str, device: Device | None) -> str | None:
    """Why this node cannot run it; None when it can."""
    if not engine.name:
        return f"image {image} needs a container engine; this node has none: {engine.why}"
    if not is_gpu(device) or engine.cdi:
        return None
    need = {
        "docker": f"docker {DOCKER_WITH_CDI} or newer with CDI switched on",
        "podman": f"podman {PODMAN_WITH_CDI} or newer",
    }[engine.name]
    return f"GPUs come into containers by CDI, which needs {need}; this node has {engine.words}"


def major(version: str) -> int:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0


def plan(
    spec: WorkerSpec,
    device: Device | None,
    image: str,
    environment: Mapping[str, str],
    place: Place,
    limits: Limits,
) -> Plan:
    """`environment` is what the kind of worker adds or sets; `limits` are the node's."""
    made = Plan(
        image,
        _environment(spec, device, environment),
        {AGENT_LABEL: place.agent, WORKER_LABEL: spec.worker},
        limits.of(spec.limits),
        binds=_binds(spec, place),
        devices=tuple(map(cdi_name, spec.devices)) if is_gpu(device) else (),
    )
    if spec.kind == "protocol":
        return replace(made, entrypoint=spec.entrypoint or None, command=spec.command or None)
    user = f"{place.user[0]}:{place.user[1]}"
    return replace(made, entrypoint=_python_command(spec.command), command=(), user=user, groups=place.groups)


def _python_command(interpreter: Sequence[str]) -> tuple[str, ...]:
    module = ("-P", "-m", "stoker.worker.runtime", "--connect", f"{INSIDE}/{SOCKET}")
    return *(interpreter or ("python",)), *module


def _environment(spec: WorkerSpec, device: Device | None, added: Mapping[str, str]) -> dict[str, str]:
    """A container that gets GPUs by CDI has no others to be hidden. "void" keeps NVIDIA's own runtime, where
    that is the engine's default, from adding all GPUs because the image asks for them."""
    last = {NVIDIA_RUNTIME: "void"} | ({} if is_gpu(device) else {"CUDA_VISIBLE_DEVICES": ""})
    if spec.volume:
        last[VOLUME_PATH] = MOUNT_POINT
    if spec.kind == "protocol":
        return {**added, **last}
    declared = {**spec.env, **added}
    search = [f"{INSIDE}/package", *filter(None, [declared.pop("PYTHONPATH", "")])]
    return {**declared, "PYTHONPATH": ":".join(search), **last}


def _binds(spec: WorkerSpec, place: Place) -> tuple[Bind, ...]:
    volume = (Bind(place.volume, MOUNT_POINT, read_only=False),) if spec.volume else ()
    if spec.kind == "protocol":
        return volume
    return (
        Bind(place.frames, INSIDE, read_only=True),
        Bind(place.package, f"{INSIDE}/package", read_only=True),
        Bind(place.scratch_source, place.scratch, read_only=False),
        *volume,
    )


def is_gpu(device: Device | None) -> bool:
    return device is not None and device.kind != "cpu"


def cdi_name(uuid: str) -> str:
    return f"nvidia.com/gpu={uuid}"


# -- its end


@dataclass(frozen=True, slots=True)
class Ended:
    """What the engine tells of a container that has ended."""

    code: int
    oom_killed: bool = False
    error: str = ""


def ended_words(ended: Ended, killed: str | None, *, terminated: bool, memory: int | None) -> tuple[int, str]:
    """Status as subprocess gives it, and the reason. An engine gives 128 + n for an end by signal n."""
    status = _status(ended.code)
    if (
        killed is None
        and status != 0
        and (ended.oom_killed or (status == -signal.SIGKILL and memory is not None))
    ):
        sure = "killed: out of memory" if ended.oom_killed else "killed, likely out of memory"
        limit = f" (limit {memory >> 20} MiB)" if memory is not None else ""
        return status, f"{sure}{limit}"
    if ended.error:
        return status, f"the container did not run: {ended.error}"
    return status, exit_words(status, killed, terminated=terminated)


def _status(code: int) -> int:
    number = code - 128
    return -number if 0 < number < signal.NSIG else code
