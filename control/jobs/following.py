"""A job's events in order, for a reader that may come late or come back: chunks, resets, progress, the end.

Ids are `attempt-n`. When a new attempt begins, `reset` means that the chunks of the earlier one are void. One
that goes on from a save numbers its chunks as the earlier one did, and there is no reset.
The reader misses nothing: every pass reads the store after the last id that was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from stoker.control import store
from stoker.control.errors import NotFound
from stoker.control.rules.streams import StoredChunk, StreamEvent
from stoker.control.rules.types import Endpoint, JobView
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits

BATCH = 32
"""Chunks in memory at once: each may have 1 MB."""

START = (0, -1)


async def follow(
    commits: Commits,
    endpoint: Endpoint,
    job: str,
    after: tuple[int, int] | None,
    changed: asyncio.Event,
    clock: Callable[[], float],
    stops: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[StreamEvent, None]:
    """Ends after the `end` event, or without one once it `stops`: a reader comes back, to another process.
    Raises NotFound when the job was deleted."""
    cursor, progress = after or START, b""
    while True:
        changed.clear()
        view, chunks = await _read(commits, endpoint, job, cursor, clock())
        for chunk in chunks:
            if 0 < cursor[0] < chunk.attempt:
                yield StreamEvent("reset", chunk.attempt, -1, b"null")
            cursor = (chunk.attempt, chunk.n)
            yield StreamEvent("chunk", chunk.attempt, chunk.n, chunk.value, ref=chunk.ref)
        if len(chunks) < BATCH and 0 < cursor[0] < view.stream:
            cursor = (view.stream, -1)
            yield StreamEvent("reset", view.stream, -1, b"null")
        if view.progress and view.progress != progress:
            progress = view.progress
            yield StreamEvent("progress", view.attempt, cursor[1], progress)
        if len(chunks) == BATCH:
            continue
        if view.ended:
            yield StreamEvent("end", view.attempt, cursor[1], b"null", view)
            return
        if stops():
            return
        await changed.wait()


async def _read(
    commits: Commits, endpoint: Endpoint, job: str, cursor: tuple[int, int], now: float
) -> tuple[JobView, list[StoredChunk]]:
    def read(conn: Conn) -> tuple[JobView | None, list[StoredChunk]]:
        view = store.view(conn, endpoint.account, endpoint.id, job, now)
        return view, list(store.chunks(conn, job, cursor, BATCH))

    view, chunks = await commits.read(read)
    if view is None:
        raise NotFound(f"no job {job!r} on this endpoint: the id is wrong, or its time has passed")
    return view, chunks
