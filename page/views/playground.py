"""The playground, the opening page: a form from an endpoint's schema, the run as it goes, the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from nicegui import ui

from stoker.client import JobRecord
from stoker.client.errors import ClientError
from stoker.page.access.connections import Connection, Result
from stoker.page.content import media, words
from stoker.page.content.forms import InputRefused, fields_of
from stoker.page.content.samples import samples
from stoker.page.views.frame import attempt, empty, frame, titled_dialog
from stoker.page.views.inputs import InputForm
from stoker.page.views.jobs import address_of
from stoker.page.views.outputs import show_output
from stoker.page.views.style import QUIET, SMALL, heading

CONNECTS_S = 60.0
"""The longest that a browser may take to connect, once it has the page."""


async def show(connection: Connection, chosen: str = "") -> None:
    """Draws the page with the chosen endpoint, or the first that the key may use."""
    with frame(connection, "/", "Playground"):
        try:  # what is typed before the browser is connected would not arrive
            await ui.context.client.connected(CONNECTS_S)
        except TimeoutError:
            return
        endpoints = await attempt(connection.endpoints) or []
        names = [one["id"] for one in endpoints if one.get("type", "QUEUE") == "QUEUE"]
        if not names:
            nothing = (
                "There is no endpoint yet.\nCreate one on the page Endpoints, or declare one in stoker.toml."
            )
            empty(nothing, "auto_awesome")
            return
        schemas = await attempt(connection.client.input_schemas) or {}
        await Playground(connection, names, schemas).draw(chosen if chosen in names else names[0])


class Playground:
    def __init__(
        self, connection: Connection, names: list[str], schemas: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._connection, self._names, self._schemas = connection, names, schemas
        self._endpoint = names[0]
        self._job: str | None = None

    async def draw(self, endpoint: str) -> None:
        with ui.grid().classes("w-full grid-cols-1 md:grid-cols-2 gap-4 items-start"):
            with ui.card():
                self._chooser = ui.select(
                    self._names,
                    value=endpoint,
                    label="Endpoint",
                    on_change=lambda event: self._choose(event.value),
                )
                self._chooser.classes("w-full").props('aria-label="Endpoint"')
                self._serves = ui.label().classes(f"{SMALL} -mt-2")
                self._form_place = ui.column().classes("w-full gap-2")
                with ui.row().classes("gap-2"):
                    self._run_button = ui.button("Run", icon="play_arrow", on_click=self._run)
                    self._cancel_button = ui.button("Cancel", on_click=self._cancel).props("outline")
                    ui.button("Code", icon="code", on_click=self._show_code).props("flat")
            with ui.card():
                self._status = ui.label("Result").classes("font-semibold").mark("status")
                self._status.props("role=status")
                self._progress = ui.linear_progress(0, show_value=False).props('aria-label="Progress"')
                with ui.column().classes("stage w-full items-center justify-center gap-2") as self._stage:
                    ui.icon("image", size="48px").classes(QUIET).props("aria-hidden=true")
                    ui.label("What you run appears here, while it is made.").classes(QUIET)
                self._preview = ui.image().classes("w-full rounded-lg").mark("preview").props('alt="Preview"')
                self._result = ui.column().classes("w-full")
        self._cancel_button.set_visibility(False)
        self._progress.set_visibility(False)
        self._preview.set_visibility(False)
        heading("Your results")
        self._gallery = ui.grid().classes("w-full grid-cols-1 sm:grid-cols-2 md:grid-cols-3 gap-4")
        self._choose(endpoint)
        self._draw_gallery()

    def _choose(self, endpoint: str, values: Mapping[str, Any] | None = None) -> None:
        self._endpoint = endpoint
        ui.timer(0, self._tell_what_serves, once=True)
        self._form_place.clear()
        fields = fields_of(self._schemas.get(endpoint))
        with self._form_place:
            self._form = InputForm(self._connection, endpoint, fields, values or {})
        self._run_button.set_enabled(self._connection.rights.runs(endpoint))
        if not self._connection.rights.runs(endpoint):
            with self._form_place:
                ui.label("Your key may look at this endpoint, and may not run it.").classes("text-warning")

    async def _tell_what_serves(self) -> None:
        """Says what the endpoint's workers run, by their own words."""
        endpoint = self._endpoint
        health = await attempt(lambda: self._connection.client.health(endpoint))
        if health is not None and endpoint == self._endpoint:
            self._serves.set_text("; ".join(health.serves))
            self._serves.set_visibility(bool(health.serves))

    def _again(self, result: Result) -> None:
        self._chooser.value = result.endpoint
        self._choose(result.endpoint, result.job_input)
        ui.run_javascript("window.scrollTo({top: 0, behavior: 'smooth'})")

    async def _run(self) -> None:
        try:
            job_input = self._form.job_input()
        except InputRefused as refused:
            ui.notify(str(refused), type="warning")
            return
        endpoint, client = self._endpoint, self._connection.client
        record = await attempt(lambda: client.run(endpoint, job_input))
        if record is None:
            return
        self._begin(record)
        try:
            await self._follow(endpoint, record.id, job_input)
        except ClientError as error:
            self._status.text = str(error)
        finally:
            self._end()

    def _begin(self, record: JobRecord) -> None:
        self._job = record.id
        self._result.clear()
        self._preview.set_visibility(False)
        self._stage.set_visibility(True)
        self._progress.value = 0
        self._progress.set_visibility(True)
        self._cancel_button.set_visibility(True)
        self._run_button.disable()
        self._status.text = "Queued"

    def _end(self) -> None:
        self._job = None
        self._progress.set_visibility(False)
        self._cancel_button.set_visibility(False)
        self._run_button.enable()

    async def _follow(self, endpoint: str, job: str, job_input: Mapping[str, Any]) -> None:
        film = False
        async with aclosing(self._connection.client.events(endpoint, job)) as happened:
            async for event in happened:
                if event.kind == "end":
                    self._finish(JobRecord.read(event.value), endpoint, job_input, film)
                    return
                film = self._show_partial(endpoint, job, media.partial_of(event), film)

    def _show_partial(self, endpoint: str, job: str, partial: Any, film: bool) -> bool:
        """Shows a partial output. Returns whether a film is being shown."""
        if progress := media.progress_of(partial):
            self._progress.value, self._status.text = progress
        if preview := media.preview_of(partial):
            self._preview.set_source(preview)
            self._preview.set_visibility(True)
            self._stage.set_visibility(False)
        if not film and media.film_of(partial) is not None:
            film = True
            self._stage.set_visibility(False)
            address = f"/film/{quote(endpoint, safe='')}/{quote(job, safe='')}"
            with self._result:
                shown = ui.video(address, autoplay=True).classes("w-full rounded-lg").mark("film")
                shown.props["aria-label"] = "The film as it is made"
        return film

    def _finish(self, record: JobRecord, endpoint: str, job_input: Mapping[str, Any], film: bool) -> None:
        took = words.duration(record.execution_time)
        cost = words.cost_of(record.output)
        self._status.text = " · ".join(filter(None, (record.status.capitalize(), took, cost)))
        self._stage.set_visibility(False)
        if not record.succeeded:
            with self._result:
                ui.label(record.error or record.status).classes("text-negative break-words")
                ui.link("Its page, with the log", address_of(endpoint, record.id))
            return
        if media.media_of(record.output):
            self._preview.set_visibility(False)
        if not film:
            with self._result:
                show_output(record.output, alt=str(job_input.get("prompt", "The picture"))[:200])
        self._connection.keep(
            Result(endpoint, record.id, dict(job_input), record.output, record.execution_time)
        )
        self._draw_gallery()

    async def _cancel(self) -> None:
        job = self._job
        if job is not None:
            await attempt(lambda: self._connection.client.cancel(self._endpoint, job))

    def _show_code(self) -> None:
        try:
            job_input = self._form.job_input()
        except InputRefused as refused:
            ui.notify(str(refused), type="warning")
            return
        with titled_dialog("The same call as code", "!max-w-4xl") as dialog:
            found = samples(self._connection.url, self._endpoint, job_input)
            with ui.tabs().props("no-caps align=left") as tabs:
                for name in found:
                    ui.tab(name)
            with ui.tab_panels(tabs, value="curl").classes("w-full"):
                for name, text in found.items():
                    with ui.tab_panel(name):
                        code = ui.code(text, language=name.lower()).classes("w-full")
                        code.copy_button.props('aria-label="Copy the code"')
                        code.markdown.props("tabindex=0")
            ui.button("Close", on_click=dialog.close).props("flat")

    def _draw_gallery(self) -> None:
        self._gallery.clear()
        with self._gallery:
            for result in self._connection.results:
                self._draw_result(result)
            if not self._connection.results:
                ui.label("Nothing yet: what you run is kept here until the page's process ends.").classes(
                    QUIET
                )

    def _draw_result(self, result: Result) -> None:
        prompt = str(result.job_input.get("prompt", json.dumps(result.job_input)))[:200]
        with ui.card().classes("gap-1"):
            show_output(result.output, small=True, alt=prompt)
            ui.label(prompt).classes("font-medium break-words")
            seed = result.output.get("seed") if isinstance(result.output, Mapping) else None
            facts = [words.duration(result.execution_time), words.cost_of(result.output)]
            facts += [f"seed {seed}"] if seed is not None else []
            ui.label(" · ".join(filter(None, facts))).classes(f"text-sm {QUIET}")
            with ui.row().classes("w-full items-center gap-4"):
                ui.button("Again with changes", on_click=lambda: self._again(result)).props("flat dense")
                ui.link("Its job", address_of(result.endpoint, result.job))
