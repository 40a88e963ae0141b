"""Group commit: many small transactions share one fsync, and none waits for a group to fill.

    loop:    commit(fn) --> queue                     <-- results, one wake-up for the whole batch
    writer:  takes all that waits; BEGIN; fn, fn, fn; COMMIT (fsync)

Whatever arrives during one commit makes up the next. When a function of a batch raises, the batch is rolled
back and each is run again in a transaction of its own, so that one that fails spoils no other; a
function may thus run twice and must have no other effect than on its connection. Results are given out
after the fsync, never before. A store that is full, locked or broken is `Unavailable`: nothing was
accepted, and the process lives. A connection that broke is opened again by the next batch; where it broke
during COMMIT, its outcome is unknown, and the batch raises `UncertainCommit`. A batch that
conflicted with another transaction is run again, up to three times. Where a batch gets no answer for long
(a server that stands still holds its connections), whatever comes after it is refused at once.

What a function returns is known before its COMMIT, which takes longest. `early` may do then what can be taken
back. It is called only for a function that has a transaction of its own: where many share one, it would wake
the loop once more for each batch, and costs more than it gives.

There is one thread that writes, with PostgreSQL too. A second one would not commit sooner: grouping pays for
the fsync already, the functions are Python and share one interpreter lock, and order within an endpoint
would be lost. More than one control per database will need it, and `SKIP LOCKED` is in the claim for that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from stoker.control.errors import DatabaseDown, Unavailable, UncertainCommit
from stoker.control.store.database.failures import is_clash, is_full, unavailable
from stoker.control.store.database.opening import Conn, Store
from stoker.control.store.database.outages import Outage, outage_after

log = logging.getLogger(__name__)

T = TypeVar("T")
_MOST = 512
"""Functions in one transaction: it keeps the wait of the first of them bounded."""

_TRIES = 4
"""Of a batch that another transaction was in the way of."""

STUCK_S = 10.0
"""How long a batch may take before others are refused instead of kept waiting behind it."""


class Commits(Protocol):
    """The part of the committer that the control plane's shells need."""

    uncertain_commit: asyncio.Event
    """Set where it is unknown whether a commit happened. Jobs that it claimed may not have been sent, and
    ends that it stored were not reported: callers that rely on the results of commits must read the store
    again."""

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        """Runs `fn` in a transaction; returns what it returned once that is on the disk.

        `early` may be called before, on the loop, with what `fn` returned. If this raises after that, nothing
        was stored, unless it is UncertainCommit, and `early`'s caller must take back what it did.
        """

    async def read(self, fn: Callable[[Conn], T]) -> T: ...

    async def close(self) -> None: ...


def as_unavailable(error: Exception) -> Exception:
    """Returns DatabaseDown where the store is down, with the reason; any other error unchanged."""
    if isinstance(error, Unavailable) or (why := unavailable(error)) is None:
        return error
    reported = DatabaseDown(f"nothing was stored: {why}; try again later")
    reported.__cause__ = error
    return reported


def run_batch(
    conn: Conn, fns: list[Callable[[Conn], Any]], early: Callable[[Any], object] | None = None
) -> list[tuple[Any, Exception | None]]:
    """Runs them in one transaction, again where another was in the way; if that fails, each in its own.
    `early`, which is for a single one, is called before COMMIT; the function is not run again after that."""
    called = False
    for left in reversed(range(_TRIES)):
        try:
            conn.begin()
            try:
                results: list[tuple[Any, Exception | None]] = [(fn(conn), None) for fn in fns]
                if early is not None:
                    conn.send_waiting()  # another transaction may be in the way of what was only written, too
                    called = True
                    early(results[0][0])
                conn.commit()
            except BaseException:
                conn.rollback()
                raise
            return results
        except Exception as error:
            if left and not called and is_clash(error):
                continue
            reported = as_unavailable(error)
            if len(fns) == 1 or (isinstance(reported, Unavailable) and not is_full(error)):
                return [(None, reported)] * len(fns)
            break
    return [run_batch(conn, [fn])[0] for fn in fns]


def run_reads(conn: Conn, fns: list[Callable[[Conn], Any]]) -> list[tuple[Any, Exception | None]]:
    """Runs each read on a snapshot of its own. A read that fails fails alone."""
    results: list[tuple[Any, Exception | None]] = []
    for fn in fns:
        try:
            conn.begin(to_read=True)
            try:
                found = fn(conn)
            finally:
                conn.rollback()
        except Exception as error:
            results.append((None, as_unavailable(error)))
        else:
            results.append((found, None))
    return results


_Batch = Callable[[Conn, list[Callable[[Conn], Any]]], list[tuple[Any, Exception | None]]]
_Work = tuple[Callable[[Conn], Any], asyncio.Future[Any], Callable[..., None] | None]
_Result = tuple[asyncio.Future[Any], Any, Exception | None]


class _Lane(threading.Thread):
    """A thread with one connection: it runs all that is waiting as one batch, and wakes the loop once. None,
    put last, ends the thread."""

    def __init__(
        self, name: str, conn: Conn, batch: _Batch, deliver: Callable[[Sequence[_Result]], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.waiting: SimpleQueue[_Work | None] = SimpleQueue()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.began: float | None = None
        """When the batch that runs began, by the loop's clock; None while the lane waits for work."""
        self._conn, self._batch, self._deliver = conn, batch, deliver

    def run(self) -> None:
        ending = False
        while not ending:
            taken = [self.waiting.get()]
            while len(taken) < _MOST and not self.waiting.empty():
                taken.append(self.waiting.get())
            self.began = self.ended.get_loop().time()
            works = [work for work in taken if work is not None]
            results: list[tuple[Any, Exception | None]] = []
            if len(works) == 1 and works[0][2] is not None:
                early = partial(self.ended.get_loop().call_soon_threadsafe, works[0][2])
                results = run_batch(self._conn, [works[0][0]], early)
            elif works:
                results = self._batch(self._conn, [fn for fn, _, _ in works])
            self.began = None
            answers = [(future, *result) for (_, future, _), result in zip(works, results, strict=True)]
            if ending := taken[-1] is None:
                answers.append((self.ended, None, None))
            # RuntimeError: the loop was closed before the store, so nothing waits for it.
            with suppress(RuntimeError):
                self.ended.get_loop().call_soon_threadsafe(self._deliver, answers)


class Committer:
    """The writer thread and the reader thread of a store. Made on the loop that it serves."""

    def __init__(self, store: Store) -> None:
        self.uncertain_commit = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._outage: Outage | None = None
        self._writes = self._reads = _Lane("store-writer", store.writer, run_batch, self._deliver)
        if not store.shared:
            self._reads = _Lane("store-reader", store.reader(), run_reads, self._deliver)
            self._reads.start()
        self._writes.start()

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        return await self._answer(self._writes, fn, early)

    async def read(self, fn: Callable[[Conn], T]) -> T:
        """Runs `fn` on a snapshot that has every commit answered so far."""
        return await self._answer(self._reads, fn, None)

    async def _answer(self, lane: _Lane, fn: Callable[[Conn], T], early: Callable[[T], None] | None) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        began = lane.began  # its thread sets it
        if began is not None and self._loop.time() - began >= STUCK_S:
            down = DatabaseDown(
                f"nothing was stored: the database has not answered for {STUCK_S:.0f} s; try again later"
            )
            self._note(down)
            raise down
        future: asyncio.Future[T] = self._loop.create_future()
        lane.waiting.put((fn, future, early))
        return await future

    @property
    def outage(self) -> str:
        """The reason for which the database failed last, while its outage lasts; otherwise empty."""
        return "" if self._outage is None else self._outage.why

    async def close(self) -> None:
        """Ends both threads, after all earlier calls."""
        if not self._closed:
            self._closed = True
            self._writes.waiting.put(None)
            self._reads.waiting.put(None)
        for lane in (self._writes, self._reads):
            await asyncio.shield(lane.ended)
            lane.join()

    def _deliver(self, results: Sequence[_Result]) -> None:
        down: DatabaseDown | None = None
        for future, value, error in results:
            if isinstance(error, DatabaseDown):
                down = error
                if isinstance(error, UncertainCommit):
                    self.uncertain_commit.set()
            if future.done():
                continue  # the caller was cancelled; the work is done all the same
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if down is not None or self._outage is not None:
            self._note(down)

    def _note(self, down: DatabaseDown | None) -> None:
        why = None if down is None else str(down)
        self._outage, line = outage_after(self._outage, why, self._loop.time())
        if line:
            log.log(logging.WARNING if self._outage is None else logging.ERROR, "%s", line)
