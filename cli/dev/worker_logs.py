"""The logs of an endpoint's workers at a terminal: each line after its time, its endpoint and its worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from itertools import zip_longest
from typing import Any

from stoker.cli.dev.local_server.display import Display
from stoker.client import AsyncClient, NotFound, Unavailable

POLL_S = 1.0
"""How often new workers are looked for."""


def placed(endpoint: Mapping[str, Any]) -> list[str]:
    """Returns the ids of the workers that are on a node, of an endpoint as the management API shows it."""
    return [one["id"] for one in endpoint.get("workers", ()) if one["status"] != "THROTTLED"]


async def show_workers(stoker: AsyncClient, endpoint: str, name: str, display: Display) -> None:
    workers = placed(await stoker.manage.endpoints.get(endpoint, includeWorkers=True))
    for worker in workers:
        await show_worker(stoker, endpoint, worker, f"{name}/{worker}", display)
    if not workers:
        display.line(name, "it has no workers now", "dim")


async def show_worker(stoker: AsyncClient, endpoint: str, worker: str, name: str, display: Display) -> None:
    """Shows the last lines of a worker, and nothing of one that has gone meanwhile."""
    try:
        log = await stoker.worker_log(endpoint, worker)
    except NotFound:
        return
    except Unavailable as error:
        display.line(name, str(error), "yellow")
        return
    for line, at_ms in zip_longest(log.lines, log.printed_at):
        display.line(name, line, at_ms=at_ms)
    if not log.lines:
        display.line(name, "it has printed nothing", "dim")


async def follow_workers(stoker: AsyncClient, endpoint: str, name: str, display: Display) -> None:
    """Shows the lines of the workers that are there now, and of all that come."""
    following: dict[str, asyncio.Task[str | None]] = {}
    async with asyncio.TaskGroup() as tasks:
        while True:
            for worker in placed(await stoker.manage.endpoints.get(endpoint, includeWorkers=True)):
                after: str | None = ""
                if (known := following.get(worker)) is not None:
                    after = known.result() if known.done() else None
                if after is not None:
                    work = follow_worker(stoker, endpoint, worker, f"{name}/{worker}", display, after)
                    following[worker] = tasks.create_task(work)
            await asyncio.sleep(POLL_S)


async def follow_worker(
    stoker: AsyncClient, endpoint: str, worker: str, name: str, display: Display, after: str = ""
) -> str | None:
    """Shows the lines of a worker until it is gone. Returns the id of the last one, to go on if the worker
    comes back with its node; None where its node does not send its log."""
    try:
        lines = stoker.worker_log(endpoint, worker, follow=True, after=after or None)
        async with aclosing(lines) as events:
            async for event in events:
                display.printed(name, event)
                after = event.id or after
    except NotFound:
        return after
    except Unavailable as error:
        display.line(name, f"its log cannot be followed: {error}", "yellow")
        return None
    return after
