"""A template's imports, and the proof that a fork after them is safe.

Only what is installed is imported: the standard library, and what a distribution provides. After each name it
is looked whether the import left a second thread (its locks would be held for ever in a fork), an open
descriptor (its place in a file would be shared; a device's context does not survive a fork) or a mapped
device. The first of them is the reason why this set of imports has no template.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import stat
import sys
import threading
from collections.abc import Collection, Iterable

from stoker.worker.errors import WorkerError

DEVICES = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/dxg", "/dev/accel/")

NVML_OPENED_MAX = 1000


class Unfit(WorkerError):
    """This set of imports cannot have a template; the text is a sentence for the operator."""


def import_all(names: Iterable[str]) -> dict[str, str]:
    """Imports each name and proves each; where the top-level packages were found. Raises Unfit."""
    from importlib.metadata import packages_distributions  # brings much that a fresh worker does not have

    before = descriptors()
    provided = frozenset(packages_distributions())  # once: it reads what every distribution says of itself
    origins = {}
    for name in names:
        top = name.partition(".")[0]
        require_installed(top, provided)
        try:
            pkgutil.resolve_name(name)
        except BaseException as error:  # a module may do anything when it is imported, and call sys.exit
            raise Unfit(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        _close_nvml()
        prove(name, before)
        origins[top] = str(getattr(sys.modules[top], "__file__", None) or "")
    return origins


def require_installed(top: str, provided: Collection[str]) -> None:
    """Raises Unfit for what is neither of the standard library nor provided by an installed distribution."""
    if not top.isidentifier():
        raise Unfit(f"{top!r} is no module's name")
    if top not in sys.stdlib_module_names and top not in provided:
        raise Unfit(f"no installed distribution provides {top}; only installed modules are preloaded")


def prove(name: str, before: dict[int, str]) -> None:
    """Raises Unfit if `name` has left behind what a fork must not share."""
    if _threads() > 1:
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        raise Unfit(f"importing {name} leaves a thread running ({', '.join(others) or 'of native code'})")
    for fd, target in descriptors().items():
        if before.get(fd) != target:
            what = "the device " if _is_device(fd) else ""
            raise Unfit(f"importing {name} leaves {what}{target} open")
    if mapped := _mapped_device():
        raise Unfit(f"importing {name} leaves the device {mapped} mapped")
    if _cuda_is_on():
        raise Unfit(f"importing {name} initialises CUDA, which does not survive a fork")


def _threads() -> int:
    """As the kernel counts them: those of native code, too."""
    return len(os.listdir("/proc/self/task"))


def descriptors() -> dict[int, str]:
    """What is open, but for the listing itself."""
    found = {}
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.name for entry in entries]
    for name in names:
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # that of the listing
    return found


def _is_device(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def mapped() -> set[str]:
    """The files that this process has in its memory, and the kernel's words for the rest."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return {line.split(maxsplit=5)[-1].strip() for line in file}


def _mapped_device() -> str | None:
    return next((path for path in sorted(mapped()) if path.startswith(DEVICES)), None)


def _close_nvml() -> None:
    """Libraries ask NVML as they are imported whether there is a GPU, and leave it and its devices open. They
    open it again when they ask again."""
    for path in mapped():
        if os.path.basename(path).startswith("libnvidia-ml.so"):
            shutdown = ctypes.CDLL(path).nvmlShutdown
            for _ in range(NVML_OPENED_MAX):
                if shutdown() != 0:  # it counts how often it was opened
                    break


def _cuda_is_on() -> bool:
    """Asks torch only where it has been imported; the question itself starts nothing."""
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())
