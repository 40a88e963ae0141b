"""What lies at the URLs that jobs were given: fetched through the guard, and once while it holds.

    fetch ── fresh and here? ── served
         └── a transfer of this URL under way? ── joined
         └── begin one ── asked whether it changed (304), or fetched ── kept, where its server lets it

Transfers are shared, patience and limits are not: see `agent.input_transfer`. What is kept, for how long and
how it is believed: see `agent.input_store` and `agent.cache_policy`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from stoker.agent import cache_policy
from stoker.agent.cache_policy import Known
from stoker.agent.input_store import InputStore, digest_of
from stoker.agent.input_transfer import Held, Transfer
from stoker.agent.seams import FetchedInput, InputRefused, InputWish
from stoker.outbound.addresses import shown
from stoker.outbound.disk import free_bytes
from stoker.outbound.errors import FetchFailed, OutboundError, TooLarge, UrlRefused
from stoker.outbound.guard import Answer, Fetched, Limits, Sink

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Transfers of one agent. The others wait, within the patience of their guests."""

AT_ONCE_OF_A_HOST = 8
"""Of these: one that is slow, or wants to be, holds up its own alone."""

_AFTER_HOST = re.compile(r"[/?#].*", re.DOTALL)

LIMITS = Limits(size=16 << 30, seconds=3600.0, silence=30.0)
"""What no transfer may exceed, whatever its guests would take."""

RESERVE = 256 << 20
"""Bytes of the disk that stay free."""


class Fetcher(Protocol):
    """The guard: see `outbound.guard.Guard`."""

    async def fetch_to(
        self,
        url: str,
        file: Sink,
        limits: Limits | None = None,
        *,
        conditions: Mapping[str, str] | None = None,
        begun: Callable[[Answer], None] | None = None,
    ) -> Fetched: ...


class InputCache:
    """Implements `seams.Inputs`. Keeps `most` bytes below `folder`, which no other process may use.

    `guard(private)` is what fetches, `clock` the wall clock.
    """

    def __init__(
        self,
        folder: Path,
        most: int,
        guard: Callable[[bool], Fetcher],
        *,
        clock: Callable[[], float] = time.time,
        reserve: int = RESERVE,
    ) -> None:
        self._folder = folder
        self._store = InputStore(folder, most, clock)
        self._guard = guard
        self._clock = clock
        self._reserve = reserve
        self._transfers: dict[str, Transfer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, wish: InputWish) -> FetchedInput:
        patience = min(wish.timeout_s, LIMITS.seconds)
        try:
            async with asyncio.timeout(patience):
                return await self._fetch(wish)
        except TimeoutError:
            told = f"{shown(wish.url)} was not fetched within {patience:g} s"
            raise InputRefused("too_slow", told, retryable=True) from None

    async def close(self) -> None:
        """Ends what is under way; whoever waits for it is told."""
        for transfer in self._transfers.values():
            transfer.fail(InputRefused("over", "the agent is shutting down", retryable=True))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, wish: InputWish) -> FetchedInput:
        key = digest_of(f"{'private' if wish.private else 'public'} {wish.url}")
        known = self._store.known(key)
        if known is not None and cache_policy.plan(known, self._clock()).act == "serve":
            held = await self._store.open(known.sha256)
            if held is not None:
                try:
                    return held.handed(wish.url, wish.max_bytes)
                finally:
                    held.close()
        transfer = self._transfers.get(key)
        if transfer is None or not transfer.open:
            transfer = self._begin(key, wish)
        return await transfer.join(wish.max_bytes)

    def _begin(self, key: str, wish: InputWish) -> Transfer:
        transfer = self._transfers[key] = Transfer(wish.url, self._room)
        task = asyncio.get_running_loop().create_task(self._bring(key, wish, transfer), name="input")
        transfer.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return transfer

    async def _bring(self, key: str, wish: InputWish, transfer: Transfer) -> None:
        """To its end, whatever that is: somebody waits for it."""
        try:
            async with self._turn_of(wish.url), self._turn:
                transfer.done(await self._brought(key, wish, transfer))
        except InputRefused as refused:
            transfer.fail(refused)
        except OutboundError as error:
            transfer.fail(refusal_of(error))
        except OSError as error:
            told = f"{shown(wish.url)} cannot be kept on this node: {error.strerror or error}"
            transfer.fail(InputRefused("no_room", told, retryable=True))
        except Exception as error:
            log.exception("fetching %s failed", shown(wish.url))
            transfer.fail(InputRefused("unreachable", f"{shown(wish.url)} cannot be fetched: {error!r}"))
        finally:
            if self._transfers.get(key) is transfer:
                del self._transfers[key]

    def _turn_of(self, url: str) -> asyncio.Semaphore:
        """Of its host; it lives as long as somebody waits for it or has it."""
        host = _AFTER_HOST.sub("", url.partition("://")[2]).lower()
        return self._turns.setdefault(host, asyncio.Semaphore(AT_ONCE_OF_A_HOST))

    async def _brought(self, key: str, wish: InputWish, transfer: Transfer) -> Held:
        known = self._store.known(key)
        decision = cache_policy.plan(known, self._clock())
        if known is None or decision.act == "fetch":
            return await self._transferred(key, wish, transfer)
        here = await self._store.open(known.sha256)
        if here is None:
            return await self._transferred(key, wish, transfer)
        if decision.act == "serve":  # another transfer has just brought it
            return here
        try:
            fetched = await self._asked(key, wish, transfer, known, decision.conditions)
        except BaseException:
            here.close()
            raise
        if fetched is None:
            return here
        here.close()
        return fetched

    async def _asked(
        self, key: str, wish: InputWish, transfer: Transfer, known: Known, conditions: Mapping[str, str]
    ) -> Held | None:
        """What lies there now; None when it is what we have."""
        found = await self._guarded(key, wish, transfer, conditions)
        if isinstance(found, Held):
            return found
        if digest_of(found.url) != known.source:  # another address answers now, about a thing of its own
            return await self._transferred(key, wish, transfer)
        renewed = cache_policy.renew(known, found.headers, redirected=found.hops > 0, now=self._clock())
        if renewed is None:
            self._store.forget(key)
        else:
            self._store.remember(key, renewed)
        return None

    async def _transferred(self, key: str, wish: InputWish, transfer: Transfer) -> Held:
        found = await self._guarded(key, wish, transfer, {})
        assert isinstance(found, Held)  # nothing was asked
        return found

    async def _guarded(
        self, key: str, wish: InputWish, transfer: Transfer, conditions: Mapping[str, str]
    ) -> Held | Answer:
        """What came, or the answer that nothing has changed."""
        path = self._store.new_path()
        try:
            with path.open("xb") as file:
                fetched = await self._guard(wish.private).fetch_to(
                    wish.url, transfer.into(file), LIMITS, conditions=conditions, begun=transfer.begun
                )
            return fetched.answer if fetched.answer.unchanged else self._taken_in(key, path, fetched)
        finally:
            path.unlink(missing_ok=True)

    def _taken_in(self, key: str, path: Path, fetched: Fetched) -> Held:
        """Keeps it where its server lets us; open in either case."""
        answer = fetched.answer
        known = cache_policy.keep(
            answer.headers,
            fetched.sha256,
            fetched.size,
            digest_of(answer.url),
            redirected=answer.hops > 0,
            now=self._clock(),
        )
        held = Held(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fetched.size, fetched.sha256)
        try:
            if known is None:
                self._store.forget(key)
            else:
                self._store.keep(key, path, known)
        except BaseException:
            held.close()
            raise
        return held

    def _room(self, size: int) -> None:
        if free_bytes(self._folder) - size < self._reserve:
            raise InputRefused("no_room", "the disk of this node is too full for the input", retryable=True)


def refusal_of(error: OutboundError) -> InputRefused:
    if isinstance(error, (UrlRefused, FetchFailed, TooLarge)):
        return InputRefused(error.reason, str(error), retryable=error.retryable)
    return InputRefused("unreachable", str(error), retryable=error.retryable)
