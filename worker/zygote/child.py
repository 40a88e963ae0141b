"""What a spare makes of itself when it becomes a worker: everything that an `exec` would have given it.

    become ─> output ─> environment ─> volume ─> folder, limits ─> seeds, threads ─> the module

The user is the template's already: the environment that an endpoint declares may bring code into any process
that imports something, so a template is never more than its workers are.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stoker.worker.launch import limit, mount
from stoker.worker.template_proof import mapped
from stoker.worker.template_words import THREAD_VARIABLES

PR_SET_DUMPABLE = 4

OPENBLAS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)
_libc = ctypes.CDLL(None, use_errno=True)


class Shown:
    """What the kernel shows as this process's command and environment (`/proc/<pid>/cmdline`, `environ`): the
    memory in which they stood at the start, which changes only when it is written over."""

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell where it lies."""
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._command = int(fields[45]), int(fields[46])
        self._environment = int(fields[47]), int(fields[48])
        if not 0 < self._environment[0] < self._environment[1]:
            raise OSError(0, "the kernel does not tell where this process's environment lies")

    def write(self, command: Iterable[str], environment: Mapping[str, str]) -> None:
        _write(self._command, command)
        _write(self._environment, [f"{name}={value}" for name, value in environment.items()])


def _write(place: tuple[int, int], strings: Iterable[str]) -> None:
    """The first of them, as many as there is room for."""
    start, room = place[0], place[1] - place[0]
    text = b""
    for string in strings:
        entry = os.fsencode(string) + b"\0"
        if len(text) + len(entry) > room:
            break
        text += entry
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def await_parent(not_this: int) -> None:
    """Until the process between the template and this one is gone, and the agent has inherited this one."""
    while os.getppid() == not_this:
        time.sleep(0.0002)


def guard(agent: int) -> None:
    """Nobody but root may look into this process, where its user is not the agent's: a handler of that user
    could otherwise leave something in a template for all workers to come."""
    if os.stat(f"/proc/{agent}").st_uid != os.getuid():
        _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def become(request: dict[str, Any], fds: list[int], shown: Shown, threads: Threads) -> None:
    """Everything but closing the template's descriptors, which only the template knows."""
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    log = fds[1]
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    shown.write(request["command"], request["environment"])
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
    """Of its own, where siblings would draw the same numbers. `random` sees to itself after each fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        sys.modules["torch"].default_generator.manual_seed(seed)


class Threads:
    """How many threads the loaded libraries may use. They have read their variables in the template, where
    those say 1, so a child tells them anew. What is to be called for that is looked up in the template."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._blas = list(_setters(paths))
        self._cores = physical_cores(os.sched_getaffinity(0))
        self._processors = len(os.sched_getaffinity(0))

    def restore(self) -> None:
        """To what is declared; else to what each takes by itself: torch the cores, BLAS the processors."""
        declared = {name: _number(os.environ.get(name)) for name in THREAD_VARIABLES}
        every = declared["OMP_NUM_THREADS"]
        for blas in self._blas:
            blas(declared["OPENBLAS_NUM_THREADS"] or every or self._processors)
        if "torch" in sys.modules:
            number = declared["MKL_NUM_THREADS"] or every or self._cores
            sys.modules["torch"].set_num_threads(every or number)


def libraries() -> set[str]:
    """The shared objects that this process has mapped."""
    return {path for path in mapped() if ".so" in os.path.basename(path)}


def _setters(paths: Iterable[str]) -> Iterable[Callable[[int], object]]:
    for path in sorted(paths):
        if "openblas" in os.path.basename(path):
            library = ctypes.CDLL(path)
            yield from (getattr(library, name) for name in OPENBLAS if hasattr(library, name))


def physical_cores(processors: Iterable[int]) -> int:
    """Two processors of one core count once; each counts where the kernel does not tell."""
    cores = set()
    for processor in processors:
        path = f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        try:
            with open(path, encoding="ascii") as file:
                cores.add(file.read().strip())
        except OSError:
            cores.add(f"alone {processor}")
    return max(len(cores), 1)


def _number(text: str | None) -> int | None:
    """A variable's first number: OMP_NUM_THREADS may be a list."""
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else None
