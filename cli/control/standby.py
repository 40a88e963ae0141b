"""The lead of a store: one control at a time works on it, and a standby waits for it without limit.

    the data folder's lock ──> PostgreSQL's lock of the writer ──> the store is open: this control leads
    another holds one: a control waits 20 s and ends with a sentence; a standby waits, and logs that once
    PostgreSQL does not answer: a control ends with a sentence; a standby waits, and logs that once

The kernel and the server free their locks when the holder ends, in whatever way. A holder that stands still
keeps them: nothing is taken from a control that lives.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from stoker.cli.data_folder import PATIENCE_S, RETRY_S, DataFolder, locked_after_wait
from stoker.cli.processes.readiness import MANAGER, announce_wait
from stoker.control.http.server import listener
from stoker.control.nodes import grpc_stream
from stoker.control.store.database.opening import Store, StoreAway, StoreInUse

log = logging.getLogger(__name__)

T = TypeVar("T")


async def take_lead(
    stack: AsyncExitStack,
    folder: DataFolder,
    url: str | None,
    opened: Callable[[], Store],
    ready_fd: int | None = None,
    *,
    standby: bool,
) -> Store:
    """Returns the open store, once no other control works on it; the data folder's lock is held until the
    stack ends. `url` is PostgreSQL's. A standby announces its wait at `ready_fd`. Raises CliError and
    StoreError."""
    otherwise = f"another control is running on {folder.root}"
    patience_s = math.inf if standby else PATIENCE_S
    if standby:  # loaded and checked: for the service manager its start is over
        announce_wait(ready_fd)
    waited = await stack.enter_async_context(locked_after_wait(folder.control_lock, otherwise, patience_s))
    if not standby:
        return opened()

    async def open_when_free() -> Store:
        nonlocal waited
        while True:
            if url is not None:
                from stoker.control.store.database.writer_lock import wait_until_free

                waited = await wait_until_free(url) or waited
            with suppress(StoreInUse):  # another standby was first
                return opened()

    store = await once_there(open_when_free)
    if waited:
        log.info("this standby takes over")
    return store


async def once_there(use: Callable[[], Awaitable[T]]) -> T:
    """Returns what `use` returns, once the server of the database answers; logs that it does not, and that it
    does again. For the service manager the start is over with the wait. Raises what else `use` raises."""
    away = False
    while True:
        try:
            found = await use()
        except StoreAway as error:
            if not away:
                log.warning("%s; waiting for it", error)
                MANAGER.ready("waits for its database")
            away = True
        else:
            if away:
                log.info("the database answers")
            return found
        await asyncio.sleep(RETRY_S)


async def before_stop(waiting: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Returns what `waiting` returns; None where `stop` comes first, which cancels it."""
    taking = asyncio.create_task(waiting, name="taking the lead")
    stopped = asyncio.create_task(stop.wait(), name="a signal while waiting")
    try:
        await asyncio.wait((taking, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        taking.cancel()
        stopped.cancel()
        await asyncio.gather(taking, stopped, return_exceptions=True)
    return None if taking.cancelled() else taking.result()


async def listening(serve: Callable[[], Awaitable[T]], *, standby: bool) -> T:
    """Returns the server that `serve` starts. A standby tries again for a while where the address is in use:
    the process before it may be ending. Raises CannotListen of either server."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_S if standby else -math.inf
    while True:
        try:
            return await serve()
        except (listener.CannotListen, grpc_stream.CannotListen):
            if loop.time() >= until:
                raise
        await asyncio.sleep(RETRY_S)
