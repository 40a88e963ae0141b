"""What a worker's container is made of, when it is refused, and why it ended.

Pure: facts of the node and a WorkerSpec in; the Engine API's create request, or a sentence, out.

- A python worker gets the worker package (read-only), the folder of its frame socket, and the node's scratch
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
from dataclasses import dataclass
from typing import Any

from stoker.agent.exit_words import exit_words
from stoker.wire.messages import Device, WorkerSpec

AGENT_LABEL, WORKER_LABEL = "stoker.agent", "stoker.worker"
INSIDE = "/stoker"
SOCKET = "frames.sock"
DOCKER_WITH_CDI = 25
SHM_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Engine:
    """`cdi`: whether devices can be asked for by CDI names. `why` there is no engine, where there is none."""

    name: str = ""
    version: str = ""
    cdi: bool = False
    why: str = ""

    @property
    def words(self) -> str:
        return f"{self.name} {self.version}" if self.name else f"none: {self.why}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each container. None: no limit of its own."""

    memory: int | None = None
    cpus: float | None = None
    pids: int = 4096
    nofile: int = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where things lie on the engine's host; `scratch` is the agent's own path of `scratch_source`."""

    agent: str
    frames: str
    package: str
    scratch: str
    scratch_source: str
    user: tuple[int, int] = (0, 0)


def facts(engine: Engine) -> dict[str, str]:
    """For the node's record."""
    return {"containers": engine.words, "containers_cdi": "yes" if engine.cdi else "no"}


def refusal(engine: Engine, spec: WorkerSpec, device: Device | None) -> str | None:
    """Why this node cannot run it; None when it can."""
    if not engine.name:
        return f"image {spec.image} needs a container engine; this node has none: {engine.why}"
    if not is_gpu(device) or engine.cdi:
        return None
    if engine.name == "docker":
        need = f"docker {DOCKER_WITH_CDI} or newer with CDI switched on"
        return f"GPUs come into containers by CDI, which needs {need}; this node has {engine.words}"
    return f"GPUs do not come into containers of {engine.words} through this agent"


def major(version: str) -> int:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0


def create_request(
    spec: WorkerSpec,
    device: Device | None,
    image: str,
    environment: Mapping[str, str],
    place: Place,
    limits: Limits,
) -> dict[str, Any]:
    """The body of POST /containers/create. `environment` is what the kind of worker adds or sets."""
    request: dict[str, Any] = {
        "Image": image,
        "Env": [f"{name}={value}" for name, value in _environment(spec, device, environment).items()],
        "Labels": {AGENT_LABEL: place.agent, WORKER_LABEL: spec.worker},
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(spec, device, place, limits),
    }
    if spec.kind != "protocol":
        request["Entrypoint"] = _python_command(spec.command)
        request["User"] = f"{place.user[0]}:{place.user[1]}"
    elif spec.command:
        request["Cmd"] = list(spec.command)
    return request


def _python_command(interpreter: Sequence[str]) -> list[str]:
    module = ["-P", "-m", "stoker.worker.runtime", "--connect", f"{INSIDE}/{SOCKET}"]
    return [*(interpreter or ("python",)), *module]


def _environment(spec: WorkerSpec, device: Device | None, added: Mapping[str, str]) -> dict[str, str]:
    """No GPU is hidden from one that got it by CDI: it has no others."""
    hidden = {} if is_gpu(device) else {"CUDA_VISIBLE_DEVICES": ""}
    if spec.kind == "protocol":
        return {**added, **hidden}
    declared = {**spec.env, **added}
    search = [f"{INSIDE}/package", *filter(None, [declared.pop("PYTHONPATH", "")])]
    return {**declared, "PYTHONPATH": ":".join(search), **hidden}


def _host_config(spec: WorkerSpec, device: Device | None, place: Place, limits: Limits) -> dict[str, Any]:
    config: dict[str, Any] = {
        "Init": True,
        "NetworkMode": "host",
        "LogConfig": {"Type": "none", "Config": {}},
        "SecurityOpt": ["no-new-privileges"],
        "CapDrop": ["MKNOD", "NET_RAW"],
        "PidsLimit": limits.pids,
        "ShmSize": SHM_BYTES,
        "Ulimits": [{"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile}],
    }
    if limits.memory is not None:
        config |= {"Memory": limits.memory, "MemorySwap": limits.memory}
    if limits.cpus is not None:
        config["NanoCpus"] = round(limits.cpus * 1e9)
    if spec.kind != "protocol":
        config["Mounts"] = [
            _bind(place.frames, INSIDE, read_only=True),
            _bind(place.package, f"{INSIDE}/package", read_only=True),
            _bind(place.scratch_source, place.scratch, read_only=False),
        ]
    if is_gpu(device):
        names = [f"nvidia.com/gpu={uuid}" for uuid in spec.devices]
        config["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": names}]
    return config


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def is_gpu(device: Device | None) -> bool:
    return device is not None and device.kind != "cpu"


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
