"""The environment of a local worker, and the folder that it starts in.

It is what the endpoint declares, what a python worker needs to find this package, and the marks by which the
agent finds its own; of the agent's environment nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import stoker
from stoker.agent.host.process_tree.tree import AGENT_MARK, LIFE_MARK, WORKER_MARK, life
from stoker.agent.host.storage.volumes import VOLUME_PATH
from stoker.wire.messages import Device, WorkerSpec

ENVIRONMENTS = "STOKER_ENVIRONMENTS"
"""Names the folder in which workers for functions keep environments of dependencies for each other. Only
workers of the agent's own user share one, without sandboxes."""

FUNCTIONS = "stoker.worker.functions.handler:Functions"


def runs_functions(spec: WorkerSpec) -> bool:
    """Returns whether this is the worker for functions: of its two kinds the program has no folder."""
    return spec.handler in (FUNCTIONS, "")


def working_folder(handler: str, home: Path) -> Path:
    """Returns the handler's folder, where it finds its files; a module's handler starts in the worker's
    home."""
    path, _, _ = handler.rpartition(":")
    if "/" not in path and not path.endswith(".py"):
        return home
    return present(Path(path).parent)


def present(folder: Path) -> Path:
    if not folder.is_dir():
        raise OSError(f"there is no folder {folder}")
    return folder


def package_folder() -> str:
    return str(Path(stoker.__file__).parents[1])


def python_environment(
    spec: WorkerSpec, device: Device | None, home: Path, folder: Path, volume: str = ""
) -> dict[str, str]:
    """Returns the environment of a python worker, including what it needs to find this package."""
    declared = dict(spec.env)
    search = [package_folder(), *filter(None, [declared.pop("PYTHONPATH", "")])]
    declared["PYTHONPATH"] = os.pathsep.join(search)
    return surrounded(declared, spec, device, home, folder, volume)


def surrounded(
    declared: Mapping[str, str],
    spec: WorkerSpec,
    device: Device | None,
    home: Path,
    folder: Path,
    volume: str = "",
) -> dict[str, str]:
    """Returns the environment of a worker. What is declared wins over the defaults, never over the device,
    the volume and the marks. The marks stand first. `volume` is the path of the worker's volume, as the
    worker sees it."""
    ours = marks(spec.worker, folder)
    return {
        **ours,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        **declared,
        "CUDA_VISIBLE_DEVICES": visible(spec, device),
        **({VOLUME_PATH: volume} if volume else {}),
        **ours,
    }


def visible(spec: WorkerSpec, device: Device | None) -> str:
    """Returns all GPUs of the worker by UUID, in their order, which is that of its own numbers; none for a
    worker on a CPU."""
    return ",".join(spec.devices) if device is not None and device.kind != "cpu" else ""


def marks(worker: str, folder: Path) -> dict[str, str]:
    return {WORKER_MARK: worker, AGENT_MARK: str(folder), LIFE_MARK: life()}
