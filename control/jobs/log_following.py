"""The output of a job, in order, for a reader that may come late or come back: lines, resets, and the end.

Ids are `attempt-n`, n counting the lines of an attempt. What is kept comes first: of an attempt that runs,
what its worker still remembers; of one that has ended, its stored tail. `skipped` says how many lines were
lost in between. Of an attempt on a node that sends no lines, the tail comes when it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import ExitStack

from msgspec import Struct

from stoker.control import store
from stoker.control.errors import NotFound
from stoker.control.jobs.live_logs import LiveLogs, Ring
from stoker.control.rules.streams import AttemptLog, LogEvent, LogLine
from stoker.control.rules.types import Endpoint, JobView
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import AttemptKey

LAST_LINES_S = 2.0
"""How long the last lines are waited for after the end, which comes on another stream."""


class LogPosition(Struct):
    """The last line that a reader has, and its attempt. No attempt before the first line."""

    attempt: int = 0
    n: int = -1

    def begin(self, attempt: int) -> Iterator[LogEvent]:
        if self.attempt == attempt:
            return
        if self.attempt:
            yield LogEvent("reset", attempt)
        self.attempt, self.n = attempt, -1

    def give(self, lines: Iterable[LogLine]) -> Iterator[LogEvent]:
        for n, line, at_ms in lines:
            if n <= self.n:
                continue
            if n > self.n + 1:
                yield LogEvent("skipped", self.attempt, n - 1, lines=n - self.n - 1)
            self.n = n
            yield LogEvent("log", self.attempt, n, line, at_ms=at_ms)


async def follow_logs(
    commits: Commits,
    live: LiveLogs,
    node_of: Callable[[str], str | None],
    endpoint: Endpoint,
    job: str,
    after: tuple[int, int] | None,
    changed: asyncio.Event,
    clock: Callable[[], float],
    stops: Callable[[], bool],
) -> AsyncGenerator[LogEvent, None]:
    """Ends after the `end` event, or without one once it `stops`. Raises NotFound when the job was
    deleted."""
    position = LogPosition(*after) if after else LogPosition()
    printed = asyncio.Event()
    with ExitStack() as stack:
        ring: Ring | None = None
        read_along = 0
        while True:
            changed.clear()
            view, stored = await _read(commits, endpoint, job, clock())
            if ring is not None and view.ended:
                await _last_lines(ring, printed)
            for log in stored:
                for event in _ended(position, log, live.known(AttemptKey(job, log.attempt))):
                    yield event
            if view.ended:
                yield LogEvent("end", view.attempt, position.n, view=view)
                return
            node = node_of(view.worker) if view.worker is not None else None
            if node is not None and view.attempt > max(read_along, *(log.attempt for log in stored), 0):
                read_along = view.attempt
                ring = stack.enter_context(live.reading(AttemptKey(job, view.attempt), node, printed))
                for event in position.begin(view.attempt):
                    yield event
            async for event in _along(position, ring, changed, printed, stops):
                yield event
            if stops():
                return


def _ended(position: LogPosition, log: AttemptLog, ring: Ring | None) -> Iterator[LogEvent]:
    """Yields the rest of an attempt that has ended: from memory if a reader followed it, else its stored
    tail."""
    if log.attempt < position.attempt:
        return
    yield from position.begin(log.attempt)
    if ring is not None:
        yield from position.give(ring.after(position.n))
    if ring is None or not ring.over:
        yield from position.give(log.numbered())


async def _along(
    position: LogPosition,
    ring: Ring | None,
    changed: asyncio.Event,
    printed: asyncio.Event,
    stops: Callable[[], bool],
) -> AsyncGenerator[LogEvent, None]:
    """Yields what is printed, until the job has changed."""
    changing = asyncio.create_task(changed.wait())
    try:
        while not changing.done() and not stops():
            printed.clear()
            if ring is not None:
                for event in position.give(ring.after(position.n)):
                    yield event
            came = asyncio.create_task(printed.wait())
            try:
                await asyncio.wait((changing, came), return_when=asyncio.FIRST_COMPLETED)
            finally:
                came.cancel()
    finally:
        changing.cancel()


async def _last_lines(ring: Ring, printed: asyncio.Event) -> None:
    if not ring.fed:
        return
    try:
        async with asyncio.timeout(LAST_LINES_S):
            while not ring.over:
                printed.clear()
                await printed.wait()
    except TimeoutError:
        return


async def _read(
    commits: Commits, endpoint: Endpoint, job: str, now: float
) -> tuple[JobView, tuple[AttemptLog, ...]]:
    def read(conn: Conn) -> tuple[JobView | None, tuple[AttemptLog, ...] | None]:
        return (
            store.view(conn, endpoint.account, endpoint.id, job, now),
            store.job_logs(conn, endpoint.account, endpoint.id, job, now),
        )

    view, logs = await commits.read(read)
    if view is None:
        raise NotFound(f"no job {job!r} on this endpoint: the id is wrong, or its time has passed")
    return view, logs or ()
