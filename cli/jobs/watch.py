"""Watches one job to its end: its events as they come, and its state beside them, which no event tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from stoker.cli.job_board import Board
from stoker.client import AsyncClient, ClientError, Event, JobRecord

LOOK_S = 1.0
"""Between two looks at the state of a job."""


async def watch(
    stoker: AsyncClient,
    endpoint: str,
    job: str,
    board: Board,
    heard: Callable[[Event], None],
    *,
    after: str | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> JobRecord:
    """Gives every event before the end to `heard`, and returns the record of the end."""
    states = asyncio.create_task(_tell_states(stoker, endpoint, job, board, sleep))
    try:
        async with aclosing(stoker.events(endpoint, job, after=after)) as events:
            async for event in events:
                if event.kind == "end":
                    return JobRecord.read(event.value)
                heard(event)
        raise AssertionError("events end with `end`, or raise")
    finally:
        states.cancel()
        await asyncio.wait([states])


async def _tell_states(
    stoker: AsyncClient, endpoint: str, job: str, board: Board, sleep: Callable[[float], Awaitable[None]]
) -> None:
    while True:
        try:
            record = await stoker.status(endpoint, job)
        except ClientError:
            return  # the events meet the same, and theirs is told
        if record.ended:
            return
        board.state(record)
        await sleep(LOOK_S)
