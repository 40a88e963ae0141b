"""The imports of a zygote's libraries, and a check after each that a fork is still safe.

Only installed modules are imported: the standard library, and what a distribution provides. After each name
this checks whether the import left a second thread (its locks would stay held in a fork), an open
descriptor (its offset in a file would be shared; a device's context does not survive a fork) or a mapped
device. The first that is found is the reason why this set of imports has no zygote.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pkgutil
import stat
import sys
import threading
from collections.abc import Iterable

from stoker.worker.errors import WorkerError

DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/dxg", "/dev/accel/")

NVML_OPENED_MAX = 1000


class UnsafeToFork(WorkerError):
    """The error that this set of imports cannot have a zygote; the message is for the operator."""


def import_all(names: Iterable[str]) -> dict[str, str]:
    """Imports and checks each name. Returns where the top-level packages were found. Raises UnsafeToFork."""
    before = descriptors()
    origins = {}
    for name in names:
        top = name.partition(".")[0]
        require_installed(top)
        try:
            pkgutil.resolve_name(name)
        except BaseException as error:  # a module may do anything when it is imported, and call sys.exit
            raise UnsafeToFork(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        _close_nvml()
        require_fork_safe(name, before)
        origins[top] = str(getattr(sys.modules[top], "__file__", None) or "")
    return origins


def require_installed(top: str) -> None:
    """Raises UnsafeToFork for what neither the standard library nor an installed distribution provides."""
    if not top.isidentifier():
        raise UnsafeToFork(f"{top!r} is not a module's name")
    if top not in sys.stdlib_module_names and top not in _provided():
        raise UnsafeToFork(f"no installed distribution provides {top}; only installed modules are preloaded")


@functools.cache
def _provided() -> frozenset[str]:
    """Returns what distributions provide. Reads the metadata of all, which takes as long as a worker's start,
    and imports much that a fresh worker does not have.
    """
    from importlib.metadata import packages_distributions

    return frozenset(packages_distributions())


def require_fork_safe(name: str, before: dict[int, str]) -> None:
    """Raises UnsafeToFork if `name` has left behind what a fork must not share."""
    if _threads() > 1:
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        raise UnsafeToFork(
            f"importing {name} leaves a thread running ({', '.join(others) or 'of native code'})"
        )
    for fd, target in descriptors().items():
        if before.get(fd) != target:
            what = "the device " if _is_device(fd) else ""
            raise UnsafeToFork(f"importing {name} leaves {what}{target} open")
    if device := next((path for path in sorted(mapped()) if path.startswith(DEVICES)), None):
        raise UnsafeToFork(f"importing {name} leaves the device {device} mapped")
    if _cuda_is_on():
        raise UnsafeToFork(f"importing {name} initialises CUDA, which does not survive a fork")


def _threads() -> int:
    """Counts the threads as the kernel does, so threads of native code count, too."""
    return len(os.listdir("/proc/self/task"))


def descriptors() -> dict[int, str]:
    """Returns the open descriptors and their targets, without that of the listing itself."""
    found = {}
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.name for entry in entries]
    for name in names:
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing
    return found


def _is_device(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def mapped() -> set[str]:
    """Returns the files that this process has mapped, and the kernel's names of its other mappings."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return {line.split(maxsplit=5)[-1].strip() for line in file}


def _close_nvml() -> None:
    """Shuts NVML down: libraries open it on import to look for a GPU, and leave it and its devices open. They
    open it again when they need it."""
    for path in mapped():
        if os.path.basename(path).startswith("libnvidia-ml.so"):
            shutdown = ctypes.CDLL(path).nvmlShutdown
            for _ in range(NVML_OPENED_MAX):
                if shutdown() != 0:  # it counts how often it was opened
                    break


def _cuda_is_on() -> bool:
    """Calls torch if it has been imported; the call does not start CUDA."""
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())
