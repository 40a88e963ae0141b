"""Ends what a caller holds open within seconds of the end of its key: revoked, expired, or with less right.

    begun ──RECHECK_S──> the key is found, and may ──> looked at again, RECHECK_S later
                           │no                └─ the store cannot be asked ─> the same
                           └──> the block is cancelled; Unauthorized

Answers that come at once cost no more than a timer. A key that another control revoked is found for five
seconds more (`callers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from stoker.control.errors import ControlError, Unauthorized
from stoker.control.rules.access import Caller

RECHECK_S = 5.0

May = Callable[[Caller], bool]
"""Returns whether the key may still do what it was admitted for."""


class Finds(Protocol):
    """The part of `Callers` that this needs."""

    def find(self, authorization: str | None) -> Awaitable[Caller]: ...


@asynccontextmanager
async def while_valid(callers: Finds, authorization: str | None, may: May) -> AsyncIterator[None]:
    """Runs the block for as long as the key is good for it. Raises Unauthorized."""
    loop, hold = asyncio.get_running_loop(), asyncio.timeout(None)
    watch: asyncio.Task[None] | None = None

    def begin() -> None:
        nonlocal watch
        watch = asyncio.create_task(_end_with(hold, callers, authorization, may), name="watch a key")

    timer = loop.call_later(RECHECK_S, begin)
    try:
        async with hold:
            yield
    except TimeoutError:
        if hold.expired():
            raise Unauthorized("this key was revoked, or its rights were changed, meanwhile") from None
        raise
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()
            await asyncio.wait((watch,))


async def _end_with(hold: asyncio.Timeout, callers: Finds, authorization: str | None, may: May) -> None:
    while await _is_good(callers, authorization, may):  # noqa: ASYNC110 - other controls change keys, too
        await asyncio.sleep(RECHECK_S)
    hold.reschedule(asyncio.get_running_loop().time())


async def _is_good(callers: Finds, authorization: str | None, may: May) -> bool:
    try:
        return may(await callers.find(authorization))
    except Unauthorized:
        return False
    except ControlError:  # the store cannot be asked: it is asked again
        return True
