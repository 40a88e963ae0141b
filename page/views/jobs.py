"""The jobs of an endpoint, page by page; and the page of one job, followed while it runs."""

from __future__ import annotations

import json
import time
from contextlib import aclosing, suppress
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from nicegui import ui

from stoker.client import JobAttempts, JobPage, JobRecord, NotFound
from stoker.client.calls import Search
from stoker.client.errors import ClientError
from stoker.page.access.connections import Connection
from stoker.page.content import media, words
from stoker.page.content.timeline import timeline
from stoker.page.views.frame import attempt, empty, frame, keep_live
from stoker.page.views.outputs import show_output, show_text
from stoker.page.views.paging import Pager
from stoker.page.views.style import LINK_CELL, QUIET, STATE_CELL, column, heading

SINCE = {None: "at any time", 1: "in the last hour", 24: "in the last day", 168: "in the last week"}
STATES = ("any", "IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED")
PAGE = 50
COLUMNS = [
    column("id", "Job"),
    column("status", "Status"),
    column("created", "Created (UTC)"),
    column("waited", "Waited", "right"),
    column("ran", "Ran", "right"),
    column("retries", "Retries", "right"),
    column("worker", "Worker"),
]
LOG_LINES_MOST = 5000


async def show_list(connection: Connection, chosen: str = "") -> None:
    """Draws the list of jobs."""
    with frame(connection, "/jobs", "Jobs"):
        names = [one["id"] for one in await attempt(connection.endpoints) or []]
        if not names:
            empty(
                "There is no endpoint yet, so there are no jobs.\nThe page Endpoints makes one.", "list_alt"
            )
            return
        await JobList(connection, names).draw(chosen if chosen in names else names[0])


class JobList:
    """The list of one endpoint's jobs."""

    def __init__(self, connection: Connection, names: list[str]) -> None:
        self._connection, self._names = connection, names
        self._pager = Pager(self._load, "Newer", "Older")

    async def draw(self, endpoint: str) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._endpoint = ui.select(
                self._names, value=endpoint, label="Endpoint", on_change=self._begin, with_input=True
            )
            self._endpoint.classes("w-60").props('aria-label="Endpoint"')
            self._status = ui.select(list(STATES), value="any", label="Status", on_change=self._begin)
            self._status.classes("w-40").props('aria-label="Status"')
            self._since = ui.select(SINCE, value=None, label="Submitted", on_change=self._begin)
            self._since.classes("w-40").props('aria-label="Submitted"')
            self._job = ui.input("Job id").props("clearable").on("keydown.enter", self._open_typed)
            ui.button("Open", on_click=self._open_typed).props("flat")
        with ui.row().classes("w-full items-center gap-3"):
            self._error = self._searched("Error has")
            self._worker = self._searched("Worker")
            self._node = self._searched("Node")
            self._until = self._searched("Until (UTC)").props('placeholder="2026-11-28 14:30"')
        self._table = ui.table(rows=[], columns=COLUMNS, row_key="id")
        self._table.add_slot("body-cell-id", LINK_CELL)
        self._table.add_slot("body-cell-status", STATE_CELL)
        with ui.column().classes("w-full") as self._nothing:
            empty("No such job here. The Playground runs one.", "list_alt")
        self._looked = ui.label("None among the jobs looked through: Older looks through those before.")
        self._looked.classes(QUIET)
        self._pager.draw()
        await self._load()
        keep_live(self._look)

    def _searched(self, label: str) -> ui.input:
        return ui.input(label, on_change=self._begin).props("clearable debounce=400").classes("w-44")

    async def _look(self) -> None:
        """Reads the newest page again; older pages stand still."""
        if self._pager.cursor is None:
            await self._load()

    async def _begin(self) -> None:
        self._pager.begin()
        await self._load()

    async def _load(self) -> None:
        async def find() -> JobPage:
            return await self._connection.client.requests(
                self._endpoint.value, limit=PAGE, cursor=self._pager.cursor, **self._wanted()
            )

        found = await attempt(find)
        if found is not None:
            self._show(found)

    def _wanted(self) -> Search:
        """Returns what is looked for. Raises ValueError for a time that cannot be read."""
        hours = self._since.value
        return {
            "status": None if self._status.value == "any" else self._status.value,
            "since": None if hours is None else round(1000 * (time.time() - 3600 * hours)),
            "until": words.typed_moment(self._until.value or ""),
            "worker": (self._worker.value or "").strip() or None,
            "node": (self._node.value or "").strip() or None,
            "error": self._error.value or None,
        }

    def _show(self, found: JobPage) -> None:
        self._table.rows = [row_of(self._endpoint.value, job) for job in found.jobs]
        self._table.set_visibility(bool(found.jobs))
        self._nothing.set_visibility(not found.jobs and found.cursor is None)
        self._looked.set_visibility(not found.jobs and found.cursor is not None)
        self._pager.shown(found.cursor)

    def _open_typed(self) -> None:
        if typed := (self._job.value or "").strip():
            ui.navigate.to(address_of(self._endpoint.value, typed))


def address_of(endpoint: str, job: str) -> str:
    """Returns the path of a job's page."""
    return f"/jobs/{quote(endpoint, safe='')}/{quote(job, safe='')}"


def row_of(endpoint: str, job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "link": address_of(endpoint, job.id),
        "status": job.status.replace("_", " ").lower(),
        "colour": words.COLOURS.get(job.status, "secondary"),
        "created": words.moment(job.created_at),
        "waited": words.duration(job.delay_time),
        "ran": words.duration(job.execution_time),
        "retries": job.retries,
        "worker": job.worker_id or "",
    }


async def show_one(connection: Connection, endpoint: str, job: str) -> None:
    """Draws the page of one job, and follows the job until it ends."""
    with frame(connection, "/jobs", f"Job {job}"):
        record = await attempt(lambda: connection.client.status(endpoint, job))
        if record is None:
            empty(f"Endpoint {endpoint} has no job {job}, or your key may not see it.", "list_alt")
            return
        await JobView(connection, endpoint, record).draw()


class JobView:
    def __init__(self, connection: Connection, endpoint: str, record: JobRecord) -> None:
        self._connection, self._endpoint, self._record = connection, endpoint, record
        self._parts = 0
        self._asked = self._drawn = 0  # calls of `_show`, and the last that drew

    async def draw(self) -> None:
        with ui.row().classes("w-full items-center gap-4"):
            ui.link(self._endpoint, f"/jobs?endpoint={quote(self._endpoint, safe='')}")
            self._badge = ui.label().classes("state")
            ui.space()
            self._cancel = ui.button("Cancel", on_click=self._do_cancel).props("outline")
            self._retry = ui.button("Retry", on_click=self._do_retry).props("outline")
        self._progress = ui.linear_progress(0, show_value=False).props('aria-label="Progress"')
        with ui.grid().classes("w-full grid-cols-1 md:grid-cols-2 gap-4"):
            with ui.card():
                heading("Timeline")
                self._timeline = ui.column().classes("w-full")
            with ui.card():
                heading("Output")
                self._preview = ui.image().classes("w-full rounded-lg").props('alt="Preview"')
                self._output = ui.column().classes("w-full")
        self._preview.set_visibility(False)
        await self._show_input()
        heading("Log")
        self._log = ui.log(max_lines=LOG_LINES_MOST).classes("w-full h-64")
        self._log.props('role=log aria-label="Log" tabindex=0')
        await self._show()
        if self._record.ended:
            await self._show_whole_log()
        else:
            ui.timer(0.1, self._follow, once=True)
            ui.timer(0.1, self._follow_logs, once=True)
            keep_live(self._look)

    async def _show_input(self) -> None:
        """Draws the input in full, or why it is not to be seen."""
        with ui.card().classes("w-full"):
            heading("Input")
            try:
                given = await self._connection.client.job_input(self._endpoint, self._record.id)
            except ClientError as error:  # another key's job, or a control of an earlier release
                ui.label(str(error)).classes(QUIET)
            else:
                show_text(json.dumps(given, indent=2, ensure_ascii=False))

    async def _show_whole_log(self) -> None:
        lines = [
            words.log_line(line, printed_at)
            for one in await self._logs()
            for line, printed_at in zip_longest(one.lines, one.printed_at)
        ]
        for line in lines or ["It printed nothing."]:
            self._log.push(line)

    async def _logs(self) -> Any:
        return await attempt(lambda: self._connection.client.logs(self._endpoint, self._record.id)) or ()

    async def _attempts(self) -> JobAttempts | None:
        """Returns the job's attempts; None from a control of an earlier release, which does not tell them."""

        async def find() -> JobAttempts | None:
            with suppress(NotFound):
                return await self._connection.client.attempts(self._endpoint, self._record.id)
            return None

        return await attempt(find)

    async def _show(self) -> None:
        """Draws the newest record, and the attempts as of now, unless a later call has drawn meanwhile."""
        self._asked = turn = self._asked + 1
        attempts = await self._attempts()
        if turn < self._drawn:
            return
        self._drawn = turn  # nothing is awaited from here on
        record, runs = self._record, self._connection.rights.runs(self._endpoint)
        self._badge.set_text(record.status.replace("_", " ").lower())
        self._badge.classes(replace=f"state text-{words.COLOURS.get(record.status, 'secondary')}")
        self._cancel.set_visibility(runs and not record.ended)
        self._retry.set_visibility(runs and record.status in ("FAILED", "TIMED_OUT"))
        self._progress.set_visibility(not record.ended)
        happened = timeline(record, attempts, self._parts)
        self._timeline.clear()
        with self._timeline, ui.timeline(side="right").classes("w-full"):
            for moment in happened:
                ui.timeline_entry(
                    moment.about,
                    title=moment.title,
                    subtitle=moment.time,
                    icon=moment.icon,
                    color=moment.colour,
                )
        self._output.clear()
        with self._output:
            if record.error:
                show_text(record.error)
            if record.output is not None:
                show_output(record.output)

    async def _look(self) -> None:
        if self._record.ended:
            return
        record = await attempt(lambda: self._connection.client.status(self._endpoint, self._record.id))
        if record is not None and not self._record.ended and record != self._record:
            self._record = record
            await self._show()

    async def _follow(self) -> None:
        try:
            async with aclosing(self._connection.client.events(self._endpoint, self._record.id)) as happened:
                async for event in happened:
                    if event.kind == "end":
                        self._record = JobRecord.read(event.value)
                        self._preview.set_visibility(False)
                        await self._show()
                        return
                    self._parts = 0 if event.kind == "reset" else self._parts + (event.kind == "chunk")
                    if event.kind == "chunk" and self._parts == 1:
                        await self._show()
                    self._show_partial(media.partial_of(event))
        except ClientError as error:
            ui.notify(str(error), type="negative")

    def _show_partial(self, partial: Any) -> None:
        if progress := media.progress_of(partial):
            self._progress.value = progress[0]
        if preview := media.preview_of(partial):
            self._preview.set_source(preview)
            self._preview.set_visibility(True)

    async def _follow_logs(self) -> None:
        try:
            lines = self._connection.client.logs(self._endpoint, self._record.id, follow=True)
            async with aclosing(lines) as happened:
                async for event in happened:
                    if event.kind == "log":
                        self._log.push(words.log_line_of(event.value))
        except ClientError as error:
            self._log.push(f"the log cannot be followed: {error}")

    async def _do_cancel(self) -> None:
        await attempt(lambda: self._connection.client.cancel(self._endpoint, self._record.id), "Cancelled")
        await self._look()

    async def _do_retry(self) -> None:
        if await attempt(lambda: self._connection.client.retry(self._endpoint, self._record.id)):
            ui.navigate.to(address_of(self._endpoint, self._record.id))
