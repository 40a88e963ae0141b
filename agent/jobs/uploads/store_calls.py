"""Runs blocking calls to object stores in a few daemon threads, which do not delay the agent's end.

The threads are shared by account and host (`outbound.fair_shares`), so a bucket that never answers delays
only its own account.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from stoker.outbound.fair_semaphore import FairSemaphore
from stoker.outbound.fair_shares import Requester
from stoker.wire.messages import Grant

T = TypeVar("T")

AT_ONCE = 16
"""The most calls at once. One account may have half of them, and one store of it a quarter."""

CLOSE_S = 2.0
"""How long `close` waits for calls that are under way."""


class Calls:
    def __init__(self, most: int = AT_ONCE) -> None:
        self._semaphore = FairSemaphore(most)
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, grant: Grant, call: Callable[[], T]) -> T:
        """Waits for a slot of the grant, then runs the call in a thread."""
        await self._semaphore.acquire(_requester(grant))
        return await self._start(grant, call)

    async def with_file(self, grant: Grant, fd: int, call: Callable[[int], T]) -> T:
        """Like `run`, with a duplicate of `fd` that is made at once and closed by the thread, which may go on
        reading after the caller was cancelled."""
        own = os.dup(fd)

        def calling() -> T:
            try:
                return call(own)
            finally:
                os.close(own)

        try:
            await self._semaphore.acquire(_requester(grant))
        except BaseException:  # the thread, which would close the duplicate, was not started
            os.close(own)
            raise
        return await self._start(grant, calling)

    async def close(self) -> None:
        """Waits at most CLOSE_S for the calls that are under way."""
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_S)

    async def _start(self, grant: Grant, call: Callable[[], T]) -> T:
        running = self._semaphore.start_thread(_requester(grant), "object store", call)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        await asyncio.wait([running])
        return running.result()


def _requester(grant: Grant) -> Requester:
    return grant.account, urlsplit(grant.endpoint_url).netloc.lower()
