"""Group commit: many small transactions share one fsync, and nobody waits for a group to fill.

    loop:    commit(fn) --> queue                     <-- results, one wake-up for the whole batch
    writer:  takes all that waits; BEGIN; fn, fn, fn; COMMIT (fsync)

Whatever arrives during one commit makes up the next. When a function of a batch raises, the batch is rolled
back and each is run again in a transaction of its own, so that one culprit spoils nobody else's work; a
function may thus run twice and must have no other effect than on its connection. Results are given out
after the fsync, never before. A store that is full, locked or broken is `Unavailable`: nothing was
accepted, and the process lives. A connection that broke is opened again by the next batch; where it broke
during COMMIT, nobody knows on which side of it, and the batch is told so (`InDoubt`). A batch that another
transaction was in the way of is run again, up to three times.

There is one thread that writes, with PostgreSQL too. A second one would not commit sooner: grouping pays for
the fsync already, the functions are Python and share one interpreter lock, and order within an endpoint
would be lost. More than one control per database will need it, and `SKIP LOCKED` is in the claim for that.

`InlineCommitter` does the same without a thread, for the simulation.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from stoker.control.errors import InDoubt, Unavailable
from stoker.control.store.failures import is_clash, is_full, unavailable
from stoker.control.store.opening import Conn, Store

T = TypeVar("T")
_MOST = 512
"""Functions in one transaction: it keeps the wait of the first of them bounded."""

_TRIES = 4
"""Of a batch that another transaction was in the way of."""


class Commits(Protocol):
    """What the control plane's shells ask for."""

    async def commit(self, fn: Callable[[Conn], T]) -> T: ...

    async def read(self, fn: Callable[[Conn], T]) -> T: ...

    async def close(self) -> None: ...


def said(error: Exception) -> Exception:
    """A store that is down is said in words and may be tried again; every other error stays what it is."""
    if isinstance(error, Unavailable) or (why := unavailable(error)) is None:
        return error
    told = Unavailable(f"nothing was stored: {why}; try again later")
    told.__cause__ = error
    return told


@dataclass(slots=True)
class _Work:
    fn: Callable[[Conn], Any]
    future: asyncio.Future[Any]


_Result = tuple[asyncio.Future[Any], Any, Exception | None]


def run_batch(conn: Conn, fns: list[Callable[[Conn], Any]]) -> list[tuple[Any, Exception | None]]:
    """Runs them in one transaction; if that fails, each in its own."""
    try:
        return [(result, None) for result in _tried(conn, fns)]
    except Exception as error:
        told = said(error)
        if len(fns) == 1 or (isinstance(told, Unavailable) and not is_full(error)):
            return [(None, told)] * len(fns)
    return [run_batch(conn, [fn])[0] for fn in fns]


def _tried(conn: Conn, fns: list[Callable[[Conn], Any]]) -> list[Any]:
    for _ in range(_TRIES - 1):
        try:
            return _transact(conn, fns)
        except Exception as error:
            if not is_clash(error):
                raise
    return _transact(conn, fns)


def _transact(conn: Conn, fns: list[Callable[[Conn], Any]]) -> list[Any]:
    conn.begin()
    try:
        results = [fn(conn) for fn in fns]
        _commit(conn)
    except BaseException:
        conn.rollback()
        raise
    return results


def _commit(conn: Conn) -> None:
    try:
        conn.commit()
    except Exception as error:
        if conn.broken:
            raise InDoubt(
                "the database went away in the very moment of storing: this may be stored, or not; try again"
            ) from error
        raise


def _run_reads(conn: Conn, fns: list[Callable[[Conn], Any]]) -> list[tuple[Any, Exception | None]]:
    """Each sees one snapshot. A read that fails fails alone."""
    results: list[tuple[Any, Exception | None]] = []
    for fn in fns:
        try:
            conn.begin_read()
            try:
                results.append((fn(conn), None))
            finally:
                conn.rollback()
        except Exception as error:
            results.append((None, said(error)))
    return results


_Batch = Callable[[Conn, list[Callable[[Conn], Any]]], list[tuple[Any, Exception | None]]]


class _Lane:
    """One thread with one connection: it takes all that waits, runs it, and wakes the loop once."""

    def __init__(self, name: str, conn: Conn, batch: _Batch) -> None:
        self._loop = asyncio.get_running_loop()
        self._conn = conn
        self._batch = batch
        self._waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self._closed = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, fn: Callable[[Conn], T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.put(_Work(fn, future))
        return await future

    async def close(self) -> None:
        """Whatever was asked before is done first."""
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _serve(self) -> None:
        last = False
        while not last and (first := self._waiting.get()) is not None:
            works, last = self._drain(first)
            self._tell(_deliver, self._run(works))
        self._tell(_settle, self._ended)

    def _tell(self, callback: Callable[[Any], None], value: Any) -> None:
        # RuntimeError: the loop was closed before the store, so nobody is left to be told.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, value)

    def _drain(self, first: _Work) -> tuple[list[_Work], bool]:
        works = [first]
        try:
            while len(works) < _MOST:
                more = self._waiting.get_nowait()
                if more is None:
                    return works, True
                works.append(more)
        except Empty:
            pass
        return works, False

    def _run(self, works: list[_Work]) -> list[_Result]:
        results = self._batch(self._conn, [work.fn for work in works])
        return [(work.future, value, error) for work, (value, error) in zip(works, results, strict=True)]


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _deliver(results: list[_Result]) -> None:
    for future, value, error in results:
        if future.done():
            continue  # who asked was cancelled; the work is done all the same
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class Committer:
    """One writer thread, one reader thread. Made on the loop that it serves."""

    def __init__(self, store: Store) -> None:
        self._writes = _Lane("store-writer", store.writer, run_batch)
        self._reads = self._writes if store.shared else _Lane("store-reader", store.reader(), _run_reads)

    async def commit(self, fn: Callable[[Conn], T]) -> T:
        """Runs `fn` in a transaction; returns once it is on the disk."""
        return await self._writes.run(fn)

    async def read(self, fn: Callable[[Conn], T]) -> T:
        """Runs `fn` on a snapshot that has every commit answered so far."""
        return await self._reads.run(fn)

    async def close(self) -> None:
        await self._writes.close()
        await self._reads.close()


class InlineCommitter:
    """No thread: commits at once. `hook` is called between the commit and the reply; it may raise a crash."""

    def __init__(self, store: Store, hook: Callable[[], None] | None = None) -> None:
        self._conn = store.writer
        self._hook = hook

    async def commit(self, fn: Callable[[Conn], T]) -> T:
        ((value, error),) = run_batch(self._conn, [fn])
        if self._hook is not None:
            self._hook()
        # As with the real one, others may run between the commit and the reply.
        await asyncio.sleep(0)
        if error is not None:
            raise error
        result: T = value
        return result

    async def read(self, fn: Callable[[Conn], T]) -> T:
        ((value, error),) = _run_reads(self._conn, [fn])
        await asyncio.sleep(0)
        if error is not None:
            raise error
        result: T = value
        return result

    async def close(self) -> None:
        await asyncio.sleep(0)


__all__ = ["Commits", "Committer", "InlineCommitter", "said"]
