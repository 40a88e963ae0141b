"""A semaphore that shares its slots fairly (`outbound.fair_shares`). Requesters that get no slot wait; among
those that may have one, the first comes first.

Blocking work holds its slot until its thread has ended, even if its caller has left: a call that is never
answered cannot be stopped, and if it held no slot, the number of threads would grow without limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from stoker.outbound.fair_shares import Requester, admits
from stoker.outbound.run_in_thread import run_in_thread

T = TypeVar("T")


class FairSemaphore:
    """For use on one event loop."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._in_use: Counter[Requester] = Counter()
        self._waiting: deque[tuple[Requester, asyncio.Future[None]]] = deque()

    async def acquire(self, requester: Requester) -> None:
        """Returns once `requester` holds a slot, which `release` gives back."""
        if admits(self._in_use, requester, self._slots):
            self._in_use[requester] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((requester, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it got the slot just before the cancel
                self.release(requester)
            else:
                self._waiting.remove((requester, turn))
            raise

    def release(self, requester: Requester) -> None:
        self._in_use[requester] -= 1
        if not self._in_use[requester]:
            del self._in_use[requester]
        refused: set[Requester] = set()
        for waiting in tuple(self._waiting):
            candidate, turn = waiting
            if turn.done() or candidate in refused:
                continue
            if admits(self._in_use, candidate, self._slots):
                self._in_use[candidate] += 1
                self._waiting.remove(waiting)
                turn.set_result(None)
            else:
                refused.add(candidate)

    @asynccontextmanager
    async def slot(self, requester: Requester) -> AsyncIterator[None]:
        await self.acquire(requester)
        try:
            yield
        finally:
            self.release(requester)

    async def run_in_thread(self, requester: Requester, name: str, work: Callable[[], T]) -> T:
        """What `work` returns or raises, from a daemon thread of its own."""
        await self.acquire(requester)
        ended = self.start_thread(requester, name, work)
        await asyncio.wait([ended])
        return ended.result()

    def start_thread(self, requester: Requester, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Runs `work` for a requester that holds a slot; the slot is released when the thread has ended."""
        ended = run_in_thread(name, work)
        ended.add_done_callback(lambda _: self._thread_ended(requester, ended))
        return ended

    def _thread_ended(self, requester: Requester, ended: asyncio.Future[T]) -> None:
        self.release(requester)
        if not ended.cancelled():
            ended.exception()  # its caller may have left: mark the exception as retrieved
