"""Watches a worker's memory if no cgroup limits it, and calls back once when it exceeds its limit.

Anonymous and shared pages of all its processes count, mapped or not
(`agent.host.process_tree.shared_memory`); weights that are mapped from the page cache do not. In the exact
figure (smaps) a page that several processes share counts in parts. It needs a walk through page tables, so it
is read only if the cheap sum, which counts such a page for each process, exceeds the limit.

A worker that grows by gigabytes a second may exceed its limit for up to LOOK_S before that is noticed.

A look may block while a driver changes the memory of a process. Therefore it runs in a thread, one at a time,
and blocks nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from stoker.agent.host.process_tree.shared_memory import hidden_memory, mapped_uncounted
from stoker.outbound.run_in_thread import run_in_thread

log = logging.getLogger(__name__)

LOOK_S = 0.1
MEMBERS_S = 1.0
"""How often the worker's processes are searched for among all."""


class MemoryWatch:
    """The watch over a worker's memory. `members` finds the worker's processes; `over` is called once, and
    not after `stop`. `uid` is their user, if no other worker has that user."""

    def __init__(
        self,
        limit_bytes: int,
        members: Callable[[], Iterable[int]],
        over: Callable[[], None],
        uid: int | None = None,
    ) -> None:
        self._limit, self._members, self._over, self._uid = limit_bytes, members, over, uid
        self._loop = asyncio.get_running_loop()
        self._known: tuple[int, ...] = ()
        self._search_at = 0.0
        self._stopped = False
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._loop.time() >= self._search_at:
            self._known = tuple(self._members())
            self._search_at = self._loop.time() + MEMBERS_S
        known, limit, uid = self._known, self._limit, self._uid
        try:
            look = run_in_thread("memory of a worker", lambda: is_over(known, limit, uid))
        except RuntimeError as error:  # the host may have no thread left at the moment
            log.warning("the memory of a worker cannot be measured, and is tried again: %s", error)
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


def is_over(pids: Sequence[int], limit_bytes: int, uid: int | None = None) -> bool:
    hidden = hidden_memory(pids, uid)
    cheap = sum(used(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in pids)
    if cheap + hidden.total <= limit_bytes:
        return False
    own = sum(used(pid, "smaps_rollup", (b"Pss_Anon:",)) + mapped_uncounted(pid, hidden) for pid in pids)
    return own + hidden.total > limit_bytes


def used(pid: int, file: str, names: Iterable[bytes]) -> int:
    """Returns the bytes in these lines of /proc/<pid>/<file>, or 0 if the process has ended."""
    wanted, total = set(names), 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b" ") if b"\t" not in line else line.partition(b"\t")
            if name in wanted:
                total += int(rest.split()[0]) << 10
    return total
