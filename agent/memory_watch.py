"""Watches a worker's memory where no cgroup limits it, and tells once when it is over its limit.

Anonymous and shared pages of all its processes count; weights that are mapped from the page cache do not. In
the exact figure (smaps_rollup) a page that several processes hold counts in parts. It costs a walk through
page tables, so it is asked for only when the cheap sum, which counts such a page for each, is over the limit.

A worker that grows by gigabytes a second is over for up to LOOK_S before it is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

LOOK_S = 0.1
MEMBERS_S = 1.0
"""How often all processes are searched for the worker's."""


class MemoryWatch:
    """`members` finds the worker's processes; `over` is called once."""

    def __init__(self, limit: int, members: Callable[[], Iterable[int]], over: Callable[[], None]) -> None:
        self._limit, self._members, self._over = limit, members, over
        self._loop = asyncio.get_running_loop()
        self._known: list[int] = []
        self._search_at = 0.0
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._loop.time() >= self._search_at:
            self._known = list(self._members())
            self._search_at = self._loop.time() + MEMBERS_S
        if self._is_over():
            self._timer = None
            self._over()
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _is_over(self) -> bool:
        cheap = sum(used(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in self._known)
        if cheap <= self._limit:
            return False
        exact = (b"Pss_Anon:", b"Pss_Shmem:")
        return sum(used(pid, "smaps_rollup", exact) for pid in self._known) > self._limit

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def used(pid: int, file: str, names: Iterable[bytes]) -> int:
    """Bytes of these lines of /proc/<pid>/<file>; 0 of a process that is gone."""
    wanted, total = set(names), 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b" ") if b"\t" not in line else line.partition(b"\t")
            if name in wanted:
                total += int(rest.split()[0]) << 10
    return total
