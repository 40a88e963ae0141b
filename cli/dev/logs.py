"""`stoker logs`: what the jobs of an app's endpoints print, deployed or live."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from stoker.cli.access import RESENDS, ca_file, client_errors, find_key
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.project import load
from stoker.cli.errors import CliError
from stoker.cli.short_ids import resolve_id
from stoker.cli.stopping import on_first_signal
from stoker.cli.terminal import plain_console
from stoker.client import AsyncClient, ClientError, JobRecord, NotFound
from stoker.client.apps.resources import LIVE_PREFIX

JOBS = 10
"""How many of an endpoint's newest jobs are shown."""

PAGE = 100
POLL_S = 1.0


def show_logs(url: str, data_dir: Path, endpoint: str | None, *, follow: bool) -> None:
    """Prints the lines of the newest jobs, oldest first; with `follow`, new lines until Ctrl-C. Raises
    CliError."""
    with client_errors(url):
        asyncio.run(_show(url, find_key(data_dir), endpoint, Display(plain_console()), follow=follow))


async def _show(url: str, key: str, endpoint: str | None, display: Display, *, follow: bool) -> None:
    async with AsyncClient(url, key, resends=RESENDS, ca_file=ca_file()) as stoker:
        chosen = _chosen(await stoker.manage.endpoints.list(), endpoint)
        showing = asyncio.create_task(_show_all(stoker, chosen, display, follow=follow))
        with on_first_signal(showing.cancel):
            await asyncio.wait([showing])
        if not showing.cancelled():
            try:
                showing.result()
            except* ClientError as errors:
                raise _first(errors) from None


def _first(errors: BaseExceptionGroup[ClientError]) -> ClientError:
    found = errors.exceptions[0]
    return found if isinstance(found, ClientError) else _first(found)


async def _show_all(
    stoker: AsyncClient, endpoints: Mapping[str, str], display: Display, *, follow: bool
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for id_, name in endpoints.items():
            work = _follow if follow else _show_jobs
            tasks.create_task(work(stoker, id_, name, display))


def _chosen(found: list[dict[str, Any]], endpoint: str | None) -> dict[str, str]:
    """Returns the names of the endpoints by id. Raises CliError if there are none, or only load-balanced
    ones."""
    queues = [one for one in found if one["type"] == "QUEUE"]
    if endpoint is None:
        names = {one.name for one in load(Path.cwd()).endpoints}
        chosen = {one["id"]: one["name"] for one in queues if one["name"].removeprefix(LIVE_PREFIX) in names}
        if not chosen:
            raise CliError("the app in this folder has no queue endpoints on the platform; name one")
        return chosen
    known = [(one["id"], one["name"]) for one in queues]
    id_ = resolve_id(endpoint, known, "endpoints") or resolve_id(LIVE_PREFIX + endpoint, known, "endpoints")
    if id_ is None:
        raise CliError(f"there is no queue endpoint {endpoint}; load-balanced ones have no jobs and no logs")
    return {id_: dict(known)[id_]}


async def _show_jobs(stoker: AsyncClient, endpoint: str, name: str, display: Display) -> None:
    page = await stoker.requests(endpoint, limit=JOBS)
    printed = False
    for job in reversed(page.jobs):
        with suppress(NotFound):  # its record has expired meanwhile
            for attempt in await stoker.logs(endpoint, job.id):
                for line, at_ms in zip_longest(attempt.lines, attempt.printed_at):
                    printed = True
                    display.line(name, line, at_ms=at_ms)
    if not printed:
        display.line(name, "its newest jobs printed nothing" if page.jobs else "it has no jobs yet", "dim")


async def _follow(stoker: AsyncClient, endpoint: str, name: str, display: Display) -> None:
    """Shows the lines of the jobs that run now, and of all that come."""
    seen: set[str] | None = None
    async with asyncio.TaskGroup() as tasks:
        while True:
            page = await stoker.requests(endpoint, limit=PAGE)
            for job in reversed(page.jobs):
                if not job.ended if seen is None else job.id not in seen:
                    tasks.create_task(_follow_job(stoker, endpoint, job, name, display))
            seen = {job.id for job in page.jobs}
            await asyncio.sleep(POLL_S)


async def _follow_job(
    stoker: AsyncClient, endpoint: str, job: JobRecord, name: str, display: Display
) -> None:
    with suppress(NotFound):
        async with aclosing(stoker.logs(endpoint, job.id, follow=True)) as events:
            async for event in events:
                display.printed(name, event)
