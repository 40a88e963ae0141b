"""Who is let in, and how long its place is taken: until its answer was written, or it left.

The rules are `control.rates`; this brings the clock and the count of workers. An answer that is held for long
is not owed to a caller that has gone: after a second the connection is watched, and a caller that closes it
gives up its place at once. What only waits for it ends with that; a submission goes on, as it may be half
stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from stoker.control.api.calls import Call, CallerLeft
from stoker.control.api.seam import ApiSettings, PlaneApi
from stoker.control.rates import Rates

T = TypeVar("T")

WATCH_AFTER_S = 1.0
"""A watch costs a task: an answer that comes at once is to go without."""


class Limits:
    def __init__(self, plane: PlaneApi, settings: ApiSettings) -> None:
        self._now_ms = settings.now_ms
        self._rates = (
            Rates(settings.requests_per_worker, plane.running_workers) if settings.rate_limits else None
        )

    def enter(self, call: Call, endpoint: str) -> None:
        """Raises TooMany. `endpoint` is its id: an alias counts as what it stands for."""
        if self._rates is not None:
            call.place = self._rates.enter(call.account, endpoint, call.operation, self._now_ms())


async def held(call: Call, answer: Awaitable[T]) -> T:
    """The same answer; the caller's place is given up early when it leaves. The body must have been read."""
    return await _watched(call, answer, None)


async def held_while_here(call: Call, answer: Awaitable[T]) -> T:
    """For what changes nothing: it is ended when the caller leaves, and CallerLeft raised."""
    hold = asyncio.timeout(None)
    try:
        async with hold:
            return await _watched(call, answer, hold)
    except TimeoutError:
        if hold.expired():
            raise CallerLeft from None
        raise


async def _watched(call: Call, answer: Awaitable[T], hold: asyncio.Timeout | None) -> T:
    watch = _Watch(call, hold)
    timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, watch.begin)
    try:
        return await answer
    finally:
        timer.cancel()
        await watch.end()


class _Watch:
    __slots__ = ("_call", "_hold", "_task")

    def __init__(self, call: Call, hold: asyncio.Timeout | None) -> None:
        self._call = call
        self._hold = hold
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._until_left(), name="watch a caller")

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _until_left(self) -> None:
        await self._call.until_left()
        self._call.leave()
        if self._hold is not None:
            self._hold.reschedule(asyncio.get_running_loop().time())
