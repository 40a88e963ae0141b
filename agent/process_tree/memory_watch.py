"""Watches a worker's memory where no cgroup limits it, and tells once when it is over its limit.

Anonymous and shared pages of all its processes count; weights that are mapped from the page cache do not. In
the exact figure (smaps_rollup) a page that several processes hold counts in parts. It costs a walk through
page tables, so it is asked for only when the cheap sum, which counts such a page for each, is over the limit.

A worker that grows by gigabytes a second is over for up to LOOK_S before it is seen.

Of a process that its driver holds in the middle of a change of its memory, a look may not return before the
driver does. So it looks beside the loop, one look at a time: that one waits, and nothing else does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from stoker.agent.beside import beside

log = logging.getLogger(__name__)

LOOK_S = 0.1
MEMBERS_S = 1.0
"""How often all processes are searched for the worker's."""


class MemoryWatch:
    """`members` finds the worker's processes; `over` is called once, and not after `stop`."""

    def __init__(self, limit: int, members: Callable[[], Iterable[int]], over: Callable[[], None]) -> None:
        self._limit, self._members, self._over = limit, members, over
        self._loop = asyncio.get_running_loop()
        self._known: tuple[int, ...] = ()
        self._search_at = 0.0
        self._stopped = False
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._loop.time() >= self._search_at:
            self._known = tuple(self._members())
            self._search_at = self._loop.time() + MEMBERS_S
        known, limit = self._known, self._limit
        try:
            look = beside("memory of a worker", lambda: is_over(known, limit))
        except RuntimeError as error:  # a host without a thread to spare may have one in a moment
            log.warning("the memory of a worker cannot be looked at, and it is tried again: %s", error)
            self._timer = self._loop.call_later(LOOK_S, self._look)
        else:
            look.add_done_callback(self._looked)

    def _looked(self, look: asyncio.Future[bool]) -> None:
        if self._stopped:
            return
        if look.result():
            self._stopped = True
            self._over()
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()


def is_over(pids: Sequence[int], limit: int) -> bool:
    cheap = sum(used(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
    if cheap <= limit:
        return False
    return sum(used(pid, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids) > limit


def used(pid: int, file: str, names: Iterable[bytes]) -> int:
    """Bytes of these lines of /proc/<pid>/<file>; 0 of a process that is gone."""
    wanted, total = set(names), 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b" ") if b"\t" not in line else line.partition(b"\t")
            if name in wanted:
                total += int(rest.split()[0]) << 10
    return total
