"""Waits on somebody else's server, within the rule (`outbound.wait_limits`). Those that get no slot queue; of
those that may have one, the first comes first.

Blocking work holds its slot until its thread has ended, even if its caller has left: otherwise the number of
threads would grow without limit. So that it ends, its line is ended (`outbound.line`) when its caller leaves,
and when its deadline has passed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from stoker.outbound.line import Line
from stoker.outbound.run_in_thread import run_in_thread
from stoker.outbound.wait_limits import Group, Waiter, WaitRule, give_back, take

T = TypeVar("T")
_Turn: TypeAlias = asyncio.Future[None]


class TooManyWaits(Exception):
    """The waiter's group has its share of the slots already."""


class WaitTooLong(Exception):
    """The deadline for the whole has passed."""


class Waits:
    """Slots for waits, used on one event loop. `rule` says who gets a slot."""

    def __init__(self, rule: WaitRule) -> None:
        self.rule = rule
        self._held: Counter[Group] = Counter()
        self._queues: dict[Group, deque[tuple[int, _Turn]]] = {}
        self._number = 0
        self._running: dict[asyncio.Future[Any], Line] = {}

    async def acquire(self, waiter: Waiter) -> None:
        """Returns once the waiter holds a slot, which `release` gives back."""
        group = waiter.group
        if not self.rule.full(self._held, group):
            take(self._held, group)
            return
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._number += 1
        self._queues.setdefault(group, deque()).append(entry := (self._number, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot came just before the cancel
                self.release(waiter)
            raise
        finally:
            self._leave(group, entry)

    def release(self, waiter: Waiter) -> None:
        give_back(self._held, waiter.group)
        for group in sorted(self._queues, key=lambda group: self._queues[group][0][0]):
            if self.rule.full(self._held, group):
                continue
            # One that is just being cancelled leaves by itself.
            turn = next((turn for _, turn in self._queues[group] if not turn.done()), None)
            if turn is not None:
                take(self._held, group)
                turn.set_result(None)

    def _leave(self, group: Group, entry: tuple[int, _Turn]) -> None:
        queue = self._queues[group]
        queue.remove(entry)
        if not queue:
            del self._queues[group]

    @asynccontextmanager
    async def slot(self, waiter: Waiter) -> AsyncIterator[None]:
        await self.acquire(waiter)
        try:
            yield
        finally:
            self.release(waiter)

    def take_now(self, waiter: Waiter) -> ExitStack:
        """Returns what gives the slot back at the end of its `with`. Raises TooManyWaits at once."""
        if self.rule.full(self._held, waiter.group):
            raise TooManyWaits
        take(self._held, waiter.group)
        taken = ExitStack()
        taken.callback(self.release, waiter)
        return taken

    # -- blocking work

    async def run(self, waiter: Waiter, name: str, work: Callable[[], T], within_s: float) -> T:
        """Returns what `work` returns or raises, from a daemon thread of its own."""
        await self.acquire(waiter)
        return await self.in_thread(waiter, name, work, within_s)

    async def with_file(
        self, waiter: Waiter, name: str, fd: int, work: Callable[[int], T], within_s: float
    ) -> T:
        """Runs `work` in a thread as `run` does, with a duplicate of `fd` that is made at once and closed by
        the thread, which may go on reading for a moment after the caller was cancelled."""
        own = os.dup(fd)

        def working() -> T:
            try:
                return work(own)
            finally:
                os.close(own)

        try:
            await self.acquire(waiter)
        except BaseException:  # the thread, which would close the duplicate, was not started
            os.close(own)
            raise
        return await self.in_thread(waiter, name, working, within_s)

    async def in_thread(self, waiter: Waiter, name: str, work: Callable[[], T], within_s: float) -> T:
        """Runs `work` for a waiter that holds a slot, which is released when the thread has ended. Raises
        WaitTooLong."""
        line = Line()

        def working() -> T:
            with line:
                result = work()
            line.check()  # what is read of a socket that was shut down may look like an answer
            return result

        ended = run_in_thread(name, working)
        self._running[ended] = line
        ended.add_done_callback(lambda _: self._thread_ended(waiter, ended))
        try:
            await asyncio.wait([ended], timeout=within_s)
        except asyncio.CancelledError:
            line.end()
            raise
        if not ended.done():
            line.end()
            raise WaitTooLong(f"it took longer than {within_s:.0f} s")
        return ended.result()

    def _thread_ended(self, waiter: Waiter, ended: asyncio.Future[T]) -> None:
        del self._running[ended]
        self.release(waiter)
        if not ended.cancelled():
            ended.exception()  # its caller may have left: mark the exception as retrieved

    async def close(self, within_s: float, *, finish_s: float = 0.0) -> None:
        """Ends the blocking work that is under way, unless it is done within `finish_s`, and waits for its
        threads, at most `within_s`."""
        if self._running and finish_s:
            await asyncio.wait(tuple(self._running), timeout=finish_s)
        for line in tuple(self._running.values()):
            line.end()
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=within_s)
