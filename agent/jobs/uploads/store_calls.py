"""Runs blocking calls to object stores in daemon threads, within the rule of waits (`outbound.wait_limits`).

A bucket that never answers delays only its own caller, and not for longer than the deadline; the platform's
store has threads that no other bucket gets. A call whose caller leaves is ended, and so are all when the
agent ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

from stoker.outbound.errors import ObjectStoreDown
from stoker.outbound.line import LineEnded
from stoker.outbound.wait_limits import UPLOADS, Waiter, WaitRule
from stoker.outbound.waits import Waits, WaitTooLong
from stoker.wire.messages import Grant

T = TypeVar("T")

CLOSE_S = 2.0
"""How long `close` waits for the threads of calls that it ended."""


class Calls:
    def __init__(self, rule: WaitRule = UPLOADS) -> None:
        self._waits = Waits(rule)

    async def run(self, grant: Grant, call: Callable[[], T], size: int = 0) -> T:
        """Waits for a slot of the grant, then runs the call in a thread. `size`: the bytes that it moves.
        Raises ObjectStoreDown after the deadline."""
        waiter, within_s = _waiter(grant), self._waits.rule.within_s(size)
        with _explained(waiter, within_s):
            return await self._waits.run(waiter, "object store", call, within_s)

    async def with_file(self, grant: Grant, fd: int, call: Callable[[int], T], size: int | None = None) -> T:
        """Runs a call that reads a file (see `Waits.with_file`); the call moves all of the file if no `size`
        is given."""
        waiter = _waiter(grant)
        within_s = self._waits.rule.within_s(os.fstat(fd).st_size if size is None else size)
        with _explained(waiter, within_s):
            return await self._waits.with_file(waiter, "object store", fd, call, within_s)

    async def close(self) -> None:
        """Ends the calls that are under way."""
        await self._waits.close(CLOSE_S)


@contextmanager
def _explained(waiter: Waiter, within_s: float) -> Iterator[None]:
    try:
        yield
    except LineEnded:
        raise ObjectStoreDown(f"the call to the object store at {waiter.host} was ended") from None
    except WaitTooLong:
        raise ObjectStoreDown(
            f"the object store at {waiter.host} did not finish within {within_s:.0f} s; it is tried again"
        ) from None


def _waiter(grant: Grant) -> Waiter:
    caller = Waiter(grant.account, grant.key, grant.endpoint)
    return caller.at(urlsplit(grant.endpoint_url).netloc.lower(), own=grant.signed)
