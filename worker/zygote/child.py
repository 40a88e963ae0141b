"""The change of a spare into a worker: sets everything that an `exec` would have set.

    become ─> output ─> environment ─> volume ─> folder, limits ─> seeds, threads ─> the module

The user is the zygote's already: the environment that an endpoint declares may bring code into any process
that imports something, so a zygote never has more rights than its workers.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stoker.worker.launch import limit, mount
from stoker.worker.zygote.fork_safety import mapped
from stoker.worker.zygote_messages import THREAD_VARIABLES

PR_SET_DUMPABLE = 4

OPENBLAS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessTitle:
    """The command and environment that the kernel shows of this process (`/proc/<pid>/cmdline`, `environ`):
    the memory that held them at the start, which has to be overwritten.
    """

    def __init__(self) -> None:
        """Raises OSError if the kernel does not report its address."""
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._command = int(fields[45]), int(fields[46])
        self._environment = int(fields[47]), int(fields[48])
        if not 0 < self._environment[0] < self._environment[1]:
            raise OSError(0, "the kernel does not report the address of this process's environment")

    def write(self, command: Iterable[str], environment: Mapping[str, str]) -> None:
        _write(self._command, command)
        _write(self._environment, [f"{name}={value}" for name, value in environment.items()])


def _write(addresses: tuple[int, int], strings: Iterable[str]) -> None:
    """Writes as many of the strings as there is room for."""
    start, room = addresses[0], addresses[1] - addresses[0]
    text = b""
    for string in strings:
        entry = os.fsencode(string) + b"\0"
        if len(text) + len(entry) > room:
            break
        text += entry
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def await_parent(not_this: int) -> None:
    """Waits until the process between the zygote and this one has ended and the agent has inherited this."""
    while os.getppid() == not_this:
        time.sleep(0.0002)


def guard(agent: int) -> None:
    """Lets only root inspect this process, if its user is not the agent's: a handler of that user
    could otherwise leave something in a zygote for all later workers."""
    if os.stat(f"/proc/{agent}").st_uid != os.getuid():
        _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def become(request: dict[str, Any], fds: list[int], title: ProcessTitle, threads: LibraryThreads) -> None:
    """Sets everything but closes none of the zygote's descriptors, which only `zygote` knows."""
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    log = fds[1]
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    title.write(request["command"], request["environment"])
    os.environ.update(request["environment"])
    if request["mount"]:
        mount(*request["mount"])
    os.chdir(request["folder"])
    limit(request["limits"])
    if request["umask"] is not None:
        os.umask(request["umask"])
    reseed()
    threads.restore()


def reseed() -> None:
    """Gives each child its own random numbers. `random` reseeds itself after each fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        sys.modules["torch"].default_generator.manual_seed(seed)


class LibraryThreads:
    """The numbers of threads that the loaded libraries may use. The libraries have read their variables in
    the zygote, where those are 1, so a child sets the numbers again. The functions for that are looked up in
    the zygote.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._blas = list(_setters(paths))
        self._cores = physical_cores(os.sched_getaffinity(0))
        self._cpus = len(os.sched_getaffinity(0))

    def restore(self) -> None:
        """Sets the declared numbers, else each library's default: torch the cores, BLAS the CPUs."""
        declared = {name: _number(os.environ.get(name)) for name in THREAD_VARIABLES}
        every = declared["OMP_NUM_THREADS"]
        for blas in self._blas:
            blas(declared["OPENBLAS_NUM_THREADS"] or every or self._cpus)
        if "torch" in sys.modules:
            number = declared["MKL_NUM_THREADS"] or every or self._cores
            sys.modules["torch"].set_num_threads(every or number)


def libraries() -> set[str]:
    """Returns the shared objects that this process has mapped."""
    return {path for path in mapped() if ".so" in os.path.basename(path)}


def _setters(paths: Iterable[str]) -> Iterable[Callable[[int], object]]:
    for path in sorted(paths):
        if "openblas" in os.path.basename(path):
            library = ctypes.CDLL(path)
            yield from (getattr(library, name) for name in OPENBLAS if hasattr(library, name))


def physical_cores(cpus: Iterable[int]) -> int:
    """Counts cores: CPUs of one core count once; each CPU counts if the kernel does not report its core."""
    cores = set()
    for cpu in cpus:
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            with open(path, encoding="ascii") as file:
                cores.add(file.read().strip())
        except OSError:
            cores.add(f"alone {cpu}")
    return max(len(cores), 1)


def _number(text: str | None) -> int | None:
    """Returns a variable's first number: OMP_NUM_THREADS may be a list."""
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else None
