"""The count of this process's descriptors after each job: those that jobs keep open are missing in later
jobs.

A bound, not a ban: a handler may open a connection or a cache in its first jobs and use it in all others.
What is left over must do for the next job, so the worker is replaced once `SHARE` of what was free when the
handler was set up is taken, or `MOST` of it.
"""

from __future__ import annotations

import os

SHARE = 3 / 4
MOST = 10_000
"""So many are a leak wherever a process may have a million."""

OPEN = "/proc/self/fd"


class OpenFiles:
    """The descriptors that are open when this is created, and how many more may be. `excess` need not be
    asked while the size of `OPEN` is below `ask_from`."""

    def __init__(self) -> None:
        self._before = _count()
        limit = os.sysconf("SC_OPEN_MAX")  # -1: none
        free = int((limit - self._before) * SHARE) if limit >= 0 else MOST
        self._max = self._before + min(max(free, 0), MOST)
        self.ask_from = self._max + 1 if os.stat(OPEN).st_size else 0

    def excess(self) -> str:
        """Returns why the worker must be replaced, or an empty text."""
        now = _count()
        if now <= self._max:
            return ""
        return f"jobs keep descriptors open: {now} are, {self._before} were when the handler was set up"


def _count() -> int:
    """Counts them. Only newer kernels (6.2) tell their number as a size."""
    try:
        return os.stat(OPEN).st_size or len(os.listdir(OPEN))
    except OSError:  # not even one is left for the folder
        return os.sysconf("SC_OPEN_MAX")
