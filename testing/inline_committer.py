"""A committer without a thread, which the simulation can crash. It behaves like `Committer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from stoker.control.store.database.commits import run_batch, run_reads
from stoker.control.store.database.opening import Conn, Store

T = TypeVar("T")


class InlineCommitter:
    """A committer without a thread: commits at once. `hook` is called between the commit and the reply; it
    may raise a crash."""

    def __init__(self, store: Store, hook: Callable[[], None] | None = None) -> None:
        self.uncertain_commit = asyncio.Event()
        self._conn = store.writer
        self._hook = hook

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        ((value, error),) = run_batch(self._conn, [fn], early)
        if self._hook is not None:
            self._hook()
        # As with the real one, others may run between the commit and the reply.
        await asyncio.sleep(0)
        if error is not None:
            raise error
        result: T = value
        return result

    async def read(self, fn: Callable[[Conn], T]) -> T:
        ((value, error),) = run_reads(self._conn, [fn])
        await asyncio.sleep(0)
        if error is not None:
            raise error
        result: T = value
        return result

    async def close(self) -> None:
        await asyncio.sleep(0)
