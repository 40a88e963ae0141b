"""The watch on a job to its end: its events, and at the same time its state, which no event reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from stoker.client import AsyncClient, ClientError, Event, JobRecord

POLL_S = 1.0
"""Between two requests for the job's state."""


async def watch(
    stoker: AsyncClient,
    endpoint: str,
    job: str,
    on_state: Callable[[JobRecord], None],
    on_event: Callable[[Event], None],
    *,
    after: str | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> JobRecord:
    """Calls `on_event` for every event before the end, and `on_state` for the record of each request before
    it; returns the record of the end."""
    states = asyncio.create_task(_poll_states(stoker, endpoint, job, on_state, sleep))
    try:
        async with aclosing(stoker.events(endpoint, job, after=after)) as events:
            async for event in events:
                if event.kind == "end":
                    return JobRecord.read(event.value)
                on_event(event)
        raise AssertionError("events end with `end`, or raise")
    finally:
        states.cancel()
        await asyncio.wait([states])


async def _poll_states(
    stoker: AsyncClient,
    endpoint: str,
    job: str,
    on_state: Callable[[JobRecord], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    while True:
        try:
            record = await stoker.status(endpoint, job)
        except ClientError:
            return  # the event stream raises the same error
        if record.ended:
            return
        on_state(record)
        await sleep(POLL_S)
