"""A job followed until it ends: its state at the terminal, and what it prints.

Of the commands of `stoker job` only those that follow import this module, with asyncio and rich.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import typer

from stoker.cli.access import RESENDS, ca_file, client_errors, find_key
from stoker.cli.consoles import plain_console
from stoker.cli.jobs.display import JobDisplay
from stoker.cli.jobs.target import INTERRUPTED, JobTarget
from stoker.cli.jobs.watch import watch
from stoker.cli.terminal import print_text
from stoker.client import AsyncClient, Event, JobRecord

OnEvent = Callable[[JobDisplay, Event], None]


def follow(
    target: JobTarget, *, after: str | None = None, on_event: OnEvent = JobDisplay.show_event
) -> JobRecord:
    """Returns the record of the job at its end. Ctrl-C leaves the job running, and ends the command."""
    with JobDisplay(plain_console(stderr=True)) as display:
        try:
            with client_errors(target.url):
                return asyncio.run(_watch(target, display, after, on_event))
        except KeyboardInterrupt:
            pass
    at = ["--from", display.last_id] if display.last_id else []
    print_text(
        f"job {target.job} goes on; follow it: {target.command('stream', *at)};"
        f" cancel it: {target.command('cancel')}",
        to_stderr=True,
    )
    raise typer.Exit(INTERRUPTED)


async def _watch(target: JobTarget, display: JobDisplay, after: str | None, on_event: OnEvent) -> JobRecord:
    async with AsyncClient(
        target.url, find_key(target.data_dir), resends=RESENDS, ca_file=ca_file()
    ) as stoker:
        return await watch(
            stoker,
            target.endpoint,
            target.job,
            display.show_state,
            lambda event: on_event(display, event),
            after=after,
        )
