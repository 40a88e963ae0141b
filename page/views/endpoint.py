"""An endpoint: its queue, times and cost, its workers and why, its roll-out; edited and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import events, ui

from stoker.page.access.connections import Connection
from stoker.page.content import words
from stoker.page.content.rollout import rollout
from stoker.page.views.endpoints import Endpoint, facts_of
from stoker.page.views.frame import attempt, empty, frame, keep_live, titled_dialog
from stoker.page.views.logs import follow_log
from stoker.page.views.paging import Pager, next_of
from stoker.page.views.style import QUIET, SMALL, STATE_CELL, column, fact, heading

PAGE = 20
STATES = ("any", "RUNNING", "IDLE", "INITIALIZING", "THROTTLED", "UNHEALTHY", "EXITED")
COLOURS = {"unhealthy": "negative", "throttled": "warning", "initializing": "warning", "exited": "secondary"}
EDITED = (
    ("workersMin", "Workers at least"),
    ("workersMax", "Workers at most"),
    ("idleTimeout", "Idle time-out (s)"),
    ("executionTimeoutMs", "Execution time-out (ms)"),
    ("scalerValue", "Scaler value"),
)


async def show(connection: Connection, name: str) -> None:
    """Draws one endpoint, and looks again while the page is open."""
    with frame(connection, "/endpoints", f"Endpoint {name}"):
        record = await attempt(lambda: connection.endpoint(name))
        if record is None:
            empty(f"There is no endpoint {name}, or your key may not see it.", "lan")
            return
        await EndpointView(connection, record).draw()


class EndpointView:
    def __init__(self, connection: Connection, record: Endpoint) -> None:
        self._connection, self._record, self._id = connection, record, str(record["id"])
        self._pager = Pager(self._load_workers)

    async def draw(self) -> None:
        manages = self._connection.rights.manages
        with ui.row().classes("w-full items-center gap-4"):
            ui.link("Run", f"/?endpoint={self._id}")
            ui.link("Jobs", f"/jobs?endpoint={self._id}")
            ui.space()
            if manages and self._record.get("origin") == "api":
                ui.button("Delete", icon="delete", on_click=self._delete).props("flat color=negative")
            if manages and self._record.get("origin") == "api":
                ui.button("Edit", icon="edit", on_click=self._edit)
            elif manages:
                ui.label("Declared on control's host, and changed there.").classes(SMALL)
        self._serves = ui.label().classes(f"text-sm {QUIET}")
        with ui.card():
            self._facts = ui.element().classes("facts w-full")
        with ui.card() as self._rollout_card:
            heading("Roll-out")
            self._rollout = ui.label().classes("w-full")
            self._rollout_bar = ui.linear_progress(0, show_value=False).props('aria-label="Roll-out"')
        if self._connection.rights.looks:
            self._draw_workers()
        await self._load()
        keep_live(self._load)

    def _draw_workers(self) -> None:
        with ui.row().classes("w-full items-center gap-4"):
            heading("Workers")
            ui.space()
            self._state = ui.select(list(STATES), value="any", label="State", on_change=self._begin)
            self._state.classes("w-40").props('aria-label="State"')
        self._workers = ui.table(rows=[], columns=_COLUMNS, row_key="id")
        self._workers.add_slot("body-cell-state", STATE_CELL)
        self._workers.add_slot("body-cell-id", _LOG_CELL)
        self._workers.on("log", self._show_log)
        self._none = ui.label("No worker. One starts when a job waits.").classes(QUIET)
        self._pager.draw()

    async def _load(self) -> None:
        record = await attempt(lambda: self._connection.endpoint(self._id))
        times = await attempt(lambda: self._connection.client.manage.endpoints.statistics(self._id))
        if record is None or times is None:
            return
        self._record = record
        self._serves.set_text("; ".join(record["health"].get("serves", ())))
        self._facts.clear()
        with self._facts:
            for title, text in (*facts_of(record), *times_of(times)):
                fact(title, text)
        self._show_rollout(times["versions"])
        if self._connection.rights.looks:
            await self._load_workers()

    async def _begin(self) -> None:
        self._pager.begin()
        await self._load_workers()

    async def _load_workers(self) -> None:
        wanted = None if self._state.value == "any" else self._state.value
        found = await attempt(
            lambda: self._connection.client.manage.endpoints.workers(
                self._id, status=wanted, limit=PAGE, after=self._pager.cursor
            )
        )
        if found is None:
            self._pager.begin()  # the worker behind which the page began is gone
            return
        self._pager.shown(next_of(found, PAGE))
        self._workers.rows = [worker_row(worker) for worker in found]
        self._workers.set_visibility(bool(found))
        self._none.set_visibility(not found)

    def _show_rollout(self, versions: Sequence[Mapping[str, int]]) -> None:
        newest = self._record.get("version", max((one["version"] for one in versions), default=1))
        going = rollout(newest, versions)
        self._rollout_card.set_visibility(going is not None)
        if going is not None:
            self._rollout.set_text(going.text)
            self._rollout_bar.value = going.share

    async def _show_log(self, event: events.GenericEventArguments) -> None:
        worker = str(event.args)
        lines = self._connection.client.worker_log(self._id, worker, follow=True)
        await follow_log(f"Log of worker {worker}", lines)

    async def _edit(self) -> None:
        with titled_dialog(f"Edit {self._record['name']}") as dialog:
            typed = {
                name: ui.number(label, value=self._record.get(name), min=0).classes("w-full")
                for name, label in EDITED
                if name in self._record
            }
            more = ui.textarea("More fields, as JSON", value="{}").classes("w-full font-mono")
            ui.label("A change of what runs, or where, makes a new version, which rolls out here.").classes(
                f"text-sm {QUIET}"
            )

            async def save() -> None:
                async def update() -> Any:
                    changes = {
                        name: int(widget.value)
                        for name, widget in typed.items()
                        if widget.value is not None and int(widget.value) != self._record.get(name)
                    }
                    changes |= json.loads(more.value or "{}")
                    return await self._connection.client.manage.endpoints.update(self._id, changes)

                if await attempt(update, "Saved") is not None:
                    dialog.close()
                    await self._load()

            with ui.row():
                ui.button("Save", on_click=save)
                ui.button("Close", on_click=dialog.close).props("flat")

    async def _delete(self) -> None:
        with titled_dialog(f"Delete {self._record['name']}?") as dialog:
            ui.label("Its jobs are cancelled, its workers stop, and its address exists no more.")

            async def delete() -> None:
                async def gone() -> bool:
                    await self._connection.client.manage.endpoints.delete(self._id)
                    return True

                if await attempt(gone, "Deleted"):
                    ui.navigate.to("/endpoints")

            with ui.row():
                ui.button("Delete", on_click=delete).props("color=negative")
                ui.button("Close", on_click=dialog.close).props("flat")


_COLUMNS = [
    column("id", "Worker"),
    column("state", "State"),
    column("version", "Version", "right"),
    column("node", "Node"),
    column("cost", "$ per hour", "right"),
    column("why", "Why"),
]
_LOG_CELL = r"""
<q-td :props="props"><q-btn flat dense no-caps class="font-mono" :label="props.value"
:aria-label="'Log of worker ' + props.value" @click="$parent.$emit('log', props.value)"></q-btn></q-td>
"""


def worker_row(worker: Mapping[str, Any]) -> dict[str, Any]:
    state = str(worker.get("status", worker.get("desiredStatus", ""))).lower()
    return {
        "id": worker["id"],
        "state": state,
        "colour": COLOURS.get(state, "positive"),
        "version": worker.get("version", ""),
        "node": worker.get("machineId", ""),
        "cost": worker.get("costPerHr", ""),
        "why": worker.get("reason", ""),
    }


def times_of(statistics: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns what is shown of an endpoint's statistics, each with its title."""

    def both(name: str) -> str:
        found = statistics.get(name)
        return f"{words.duration(found['p50'])} · {words.duration(found['p95'])}" if found else "–"

    cost = statistics.get("costPerHr")
    return (
        ("Oldest waits", words.duration(statistics.get("queueAgeMs"))),
        ("Throughput", f"{statistics['perMinute']:.3g} a minute"),
        ("Waited, p50 · p95", both("delayMs")),
        ("Ran, p50 · p95", both("executionMs")),
        ("Failed lately", f"{statistics['failed']} of {statistics['jobs']}"),
        ("Costs", "no price" if cost is None else f"${cost:.4f} an hour"),
    )
