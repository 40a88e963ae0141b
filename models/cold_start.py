"""The times of what a worker does before its first job, stage by stage.

with ColdStart() as start:
    with stage("build"):            anywhere below, on the same thread
        with stage("read"): …       its time is not counted for "build"

verify      names, sizes and small files; and what is left to hash after the rest
read        large files, to a GPU (on a CPU they are mapped, and read meanwhile by other threads)
to device   what was built elsewhere
build       the libraries' import, and the modules
compile     the blocks of the network
warm up     the other speed-ups, and one run of each size
previews    what makes them is fitted; and the safety checker of videos is loaded
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Self

log = logging.getLogger(__name__)


class ColdStart:
    """The seconds of each stage, in the order in which they first began. What is in no stage is `other`.
    `read_ahead`: the bytes and the seconds of files that were read and hashed on other threads meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.stages_s: dict[str, float] = {}
        self.total_s = 0.0
        self._open: list[str] = []
        self._since_s = 0.0

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        self._since_s = self._clock()
        self._open = ["other"]
        return self

    def __exit__(self, *_: object) -> None:
        self._count()
        _current.reset(self._token)
        self.total_s = sum(self.stages_s.values())
        log.info("set up in %s", self)

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.stages_s.items())
        return f"{self.total_s:.2f} s: {stages}"

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._count()
        self._open.append(name)
        self.stages_s.setdefault(name, 0.0)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def _count(self) -> None:
        """Counts the time since the last call for the innermost stage."""
        now_s = self._clock()
        name = self._open[-1]
        self.stages_s[name] = self.stages_s.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s


_current: ContextVar[ColdStart | None] = ContextVar("cold_start", default=None)


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Counts the time within for this stage of the cold start; for none where none is timed."""
    start = _current.get()
    return contextlib.nullcontext() if start is None else start.stage(name)
