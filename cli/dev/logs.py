"""`stoker logs`: what an app's endpoints print, deployed or live. Of a queue endpoint it is what its jobs
print, of a load-balancing one what its workers do; a worker that is named is shown alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from stoker.cli.access import RESENDS, ca_file, client_errors, find_key
from stoker.cli.consoles import plain_console
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.project import load
from stoker.cli.dev.worker_logs import follow_worker, follow_workers, placed, show_worker, show_workers
from stoker.cli.errors import CliError
from stoker.cli.processes.stopping import on_first_signal
from stoker.cli.short_ids import resolve_id
from stoker.client import AsyncClient, ClientError, JobRecord, NotFound
from stoker.client.apps.resources import LIVE_PREFIX

JOBS = 10
"""How many of an endpoint's newest jobs are shown."""

PAGE = 100
POLL_S = 1.0

Shown = dict[str, Any]
"""An endpoint as the management API shows it, with its workers."""


def show_logs(url: str, data_dir: Path, endpoint: str | None, worker: str | None, *, follow: bool) -> None:
    """Prints the last lines, oldest first; with `follow`, new lines until Ctrl-C. Raises CliError."""
    with client_errors(url):
        asyncio.run(_show(url, find_key(data_dir), endpoint, worker, follow=follow))


async def _show(url: str, key: str, endpoint: str | None, worker: str | None, *, follow: bool) -> None:
    async with AsyncClient(url, key, resends=RESENDS, ca_file=ca_file()) as stoker:
        chosen = _chosen(await stoker.manage.endpoints.list(includeWorkers=True), endpoint)
        display = Display(plain_console())
        if worker is None:
            work = _of_endpoints(stoker, chosen, display, follow=follow)
        else:
            work = _of_worker(stoker, *_chosen_worker(chosen, worker), display, follow=follow)
        showing = asyncio.create_task(work)
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


async def _of_endpoints(
    stoker: AsyncClient, endpoints: Sequence[Shown], display: Display, *, follow: bool
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for one in endpoints:
            show, go_on = _BY_TYPE[one["type"]]
            tasks.create_task((go_on if follow else show)(stoker, one["id"], one["name"], display))


async def _of_worker(
    stoker: AsyncClient, endpoint: Shown, worker: str, display: Display, *, follow: bool
) -> None:
    name = f"{endpoint['name']}/{worker}"
    if not follow:
        await show_worker(stoker, endpoint["id"], worker, name, display)
    elif await follow_worker(stoker, endpoint["id"], worker, name, display) is not None:
        display.line(name, "it is gone", "dim")


def _chosen(found: list[Shown], endpoint: str | None) -> list[Shown]:
    """Returns the endpoints that are meant. Raises CliError if there are none."""
    if endpoint is None:
        names = {one.name for one in load(Path.cwd()).endpoints}
        chosen = [one for one in found if one["name"].removeprefix(LIVE_PREFIX) in names]
        if not chosen:
            raise CliError("the app in this folder has no endpoints on the platform; name one")
        return chosen
    known = [(one["id"], one["name"]) for one in found]
    id_ = resolve_id(endpoint, known, "endpoints") or resolve_id(LIVE_PREFIX + endpoint, known, "endpoints")
    if id_ is None:
        raise CliError(f"there is no endpoint {endpoint}")
    return [one for one in found if one["id"] == id_]


def _chosen_worker(endpoints: Sequence[Shown], worker: str) -> tuple[Shown, str]:
    """Returns the endpoint of the worker, and its whole id. Raises CliError if these have no such worker."""
    of = {id_: one for one in endpoints for id_ in placed(one)}
    id_ = resolve_id(worker, [(one, "") for one in of], "workers")
    if id_ is None:
        has = f"there are {', '.join(of)}" if of else "there are none now"
        raise CliError(f"there is no worker {worker} of {', '.join(one['name'] for one in endpoints)}: {has}")
    return of[id_], id_


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


async def _follow_jobs(stoker: AsyncClient, endpoint: str, name: str, display: Display) -> None:
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


_BY_TYPE = {"QUEUE": (_show_jobs, _follow_jobs), "LOAD_BALANCER": (show_workers, follow_workers)}
"""By type of endpoint: what shows its last lines, and what follows it."""
