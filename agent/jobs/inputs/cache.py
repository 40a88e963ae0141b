"""Fetches the inputs of jobs by URL, through the guard, and caches them.

    fetch ── in the cache and fresh ── served
         └── a transfer of this URL is under way ── joined
         └── a new transfer ── revalidated (304) or fetched ── stored, if its server allows it

Concurrent requests share a transfer, but each has its own limits (`agent.jobs.inputs.transfer`). What is
stored, for how long, and how it is verified: see `agent.jobs.inputs.cache_policy` and
`agent.jobs.inputs.store`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from stoker.agent.interfaces import FetchedInput, InputRefused, InputRequest
from stoker.agent.jobs.inputs import cache_policy
from stoker.agent.jobs.inputs.cache_policy import KnownUrl
from stoker.agent.jobs.inputs.store import InputStore, digest_of
from stoker.agent.jobs.inputs.transfer import OpenContent, Transfer
from stoker.outbound.errors import FetchFailed, OutboundError, TooLarge, UrlRefused
from stoker.outbound.guard import Fetched, FetchLimits, Guard, ResponseHead
from stoker.outbound.refused_addresses import redacted_url
from stoker.outbound.wait_limits import INPUTS, Waiter
from stoker.outbound.waits import Waits

log = logging.getLogger(__name__)

_AFTER_HOST = re.compile(r"[/?#].*", re.DOTALL)

LIMITS = FetchLimits(size_bytes=16 << 30, timeout_s=INPUTS.within_s(), silence_s=30.0)
"""The limits of every transfer, whatever its requests allow. Transfers share slots by the rule of waits, so a
slow host delays only its own callers; time in the queue counts towards a request's timeout."""

RESERVE = 256 << 20
"""How many bytes of the disk stay free."""


class InputCache:
    """Implements `interfaces.Inputs`. Stores at most `most_bytes` in `folder`, which no other process may
    use.

    `guard(private)` returns what fetches; `clock` is the wall clock.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        guard: Callable[[bool], Guard],
        *,
        clock: Callable[[], float] = time.time,
        reserve: int = RESERVE,
    ) -> None:
        self._folder = folder
        self._store = InputStore(folder, most_bytes, clock)
        self._guard, self._clock, self._reserve = guard, clock, reserve
        self._transfers: dict[
            tuple[Waiter, str], Transfer
        ] = {}  # by caller and URL: none waits in another's queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits = Waits(INPUTS)

    async def fetch(self, request: InputRequest) -> FetchedInput:
        timeout_s = min(request.timeout_s, LIMITS.timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._fetch(request)
        except TimeoutError:
            why = f"{redacted_url(request.url)} was not fetched within {timeout_s:g} s"
            raise InputRefused("too_slow", why, retryable=True) from None

    async def close(self) -> None:
        """Ends all transfers; requests that wait for one fail."""
        for transfer in self._transfers.values():
            transfer.fail(InputRefused("over", "the agent is shutting down", retryable=True))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, request: InputRequest) -> FetchedInput:
        key = digest_of(f"{'private' if request.private else 'public'} {request.url}")
        known = self._store.known(key)
        if known is not None and cache_policy.plan(known, self._clock()).act == "serve":
            content = await self._store.open(known.sha256)
            if content is not None:
                try:
                    return content.reopen(request.url, request.max_bytes)
                finally:
                    content.close()
        transfer = self._transfers.get((request.whose, key))
        if transfer is None or not transfer.open:
            transfer = self._begin(key, request)
        return await transfer.join(request.max_bytes)

    def _begin(self, key: str, request: InputRequest) -> Transfer:
        transfer = self._transfers[request.whose, key] = Transfer(request.url, self._room)
        task = asyncio.get_running_loop().create_task(self._run(key, request, transfer), name="input")
        transfer.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return transfer

    async def _run(self, key: str, request: InputRequest, transfer: Transfer) -> None:
        """Runs a transfer. Ends it in any case, because requests wait for it."""
        try:
            async with self._waits.slot(request.whose.at(_host(request.url), own=request.own)):
                transfer.done(await self._revalidate_or_fetch(key, request, transfer))
        except InputRefused as refused:
            transfer.fail(refused)
        except OutboundError as error:
            transfer.fail(refusal_of(error))
        except OSError as error:
            why = f"{redacted_url(request.url)} cannot be kept on this node: {error.strerror or error}"
            transfer.fail(InputRefused("no_room", why, retryable=True))
        except Exception as error:
            log.exception("fetching %s failed", redacted_url(request.url))
            transfer.fail(
                InputRefused("unreachable", f"{redacted_url(request.url)} cannot be fetched: {error!r}")
            )
        finally:
            if self._transfers.get((request.whose, key)) is transfer:
                del self._transfers[request.whose, key]

    async def _revalidate_or_fetch(self, key: str, request: InputRequest, transfer: Transfer) -> OpenContent:
        known = self._store.known(key)
        decision = cache_policy.plan(known, self._clock())
        if known is None or decision.act == "fetch":
            return await self._fetch_anew(key, request, transfer)
        stored = await self._store.open(known.sha256)
        if stored is None:
            return await self._fetch_anew(key, request, transfer)
        if decision.act == "serve":  # another transfer has just stored it
            return stored
        try:
            fetched = await self._revalidate(key, request, transfer, known, decision.conditions)
        except BaseException:
            stored.close()
            raise
        if fetched is None:
            return stored
        stored.close()
        return fetched

    async def _revalidate(
        self,
        key: str,
        request: InputRequest,
        transfer: Transfer,
        known: KnownUrl,
        conditions: Mapping[str, str],
    ) -> OpenContent | None:
        """Returns the new content, or None if the stored one is still valid."""
        found = await self._send_request(key, request, transfer, conditions)
        if isinstance(found, OpenContent):
            return found
        if digest_of(found.url) != known.source:  # after redirects, the answer is about another address
            return await self._fetch_anew(key, request, transfer)
        renewed = cache_policy.renew(known, found.headers, redirected=found.hops > 0, now=self._clock())
        if renewed is None:
            self._store.forget(key)
        else:
            self._store.remember(key, renewed)
        return None

    async def _fetch_anew(self, key: str, request: InputRequest, transfer: Transfer) -> OpenContent:
        found = await self._send_request(key, request, transfer, {})
        assert isinstance(found, OpenContent)  # only a conditional request can be answered with 304
        return found

    async def _send_request(
        self, key: str, request: InputRequest, transfer: Transfer, conditions: Mapping[str, str]
    ) -> OpenContent | ResponseHead:
        """Returns the content, or the head of the answer that nothing has changed."""
        path = self._store.new_path()
        try:
            with path.open("xb") as file:
                fetched = await self._guard(request.private).fetch_to(
                    request.url,
                    transfer.into(file),
                    LIMITS,
                    conditions=conditions,
                    on_head=transfer.begun,
                    whose=request.whose,
                )
            return fetched.head if fetched.head.unchanged else self._open_and_store(key, path, fetched)
        finally:
            path.unlink(missing_ok=True)

    def _open_and_store(self, key: str, path: Path, fetched: Fetched) -> OpenContent:
        """Opens the fetched file, and stores it if its server allows it."""
        answer = fetched.head
        known = cache_policy.keep(
            answer.headers,
            fetched.sha256,
            fetched.size,
            digest_of(answer.url),
            redirected=answer.hops > 0,
            now=self._clock(),
        )
        content = OpenContent(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fetched.size, fetched.sha256)
        try:
            if known is None:
                self._store.forget(key)
            else:
                self._store.keep(key, path, known)
        except BaseException:
            content.close()
            raise
        return content

    def _room(self, size: int) -> None:
        if shutil.disk_usage(self._folder).free - size < self._reserve:
            raise InputRefused("no_room", "the disk of this node is too full for the input", retryable=True)


def _host(url: str) -> str:
    return _AFTER_HOST.sub("", url.partition("://")[2]).lower()


def refusal_of(error: OutboundError) -> InputRefused:
    if isinstance(error, (UrlRefused, FetchFailed, TooLarge)):
        return InputRefused(error.reason, str(error), retryable=error.retryable)
    return InputRefused("unreachable", str(error), retryable=error.retryable)
