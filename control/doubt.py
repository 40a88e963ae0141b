"""Commits that may or may not have happened: the connection to the database broke while it committed.

What such a commit did is known to the store alone: jobs that it claimed were never sent, ends that it stored
were never told. So everything that lives on what commits answer looks at the store again: nodes are made to
say Hello, which compares what they hold with what is stored, and whoever waits for a job reads it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stoker.control.commit import Commits
from stoker.control.errors import InDoubt
from stoker.control.store import Conn

T = TypeVar("T")


class WatchedCommits:
    """`commits`, and word of every commit that is in doubt."""

    def __init__(self, commits: Commits, on_doubt: Callable[[InDoubt], None]) -> None:
        self._commits = commits
        self._on_doubt = on_doubt

    async def commit(self, fn: Callable[[Conn], T]) -> T:
        try:
            return await self._commits.commit(fn)
        except InDoubt as doubt:
            self._on_doubt(doubt)
            raise

    async def read(self, fn: Callable[[Conn], T]) -> T:
        return await self._commits.read(fn)

    async def close(self) -> None:
        await self._commits.close()
