"""The endpoints: their queues, workers and roll-outs as they are now; created, edited and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from stoker.client import Health
from stoker.page.access.connections import Connection
from stoker.page.content import words
from stoker.page.views.frame import attempt, frame, live_cards

Endpoint = Mapping[str, Any]

EDITED = (
    ("workersMin", "Workers at least"),
    ("workersMax", "Workers at most"),
    ("idleTimeout", "Idle time-out (s)"),
    ("executionTimeoutMs", "Execution time-out (ms)"),
    ("scalerValue", "Scaler value"),
)


async def show(connection: Connection) -> None:
    """Draws every endpoint that the key may see, and looks again while the page is open."""
    with frame("/endpoints", "Endpoints"):
        if connection.rights.manages:
            ui.button("Create", icon="add", on_click=lambda: _create(connection)).props("no-caps")
        nothing = "There is no endpoint yet.\nCreate one, or declare one in stoker.toml."
        await live_cards(connection.endpoints, lambda one: EndpointCard(connection, one), nothing)


class EndpointCard:
    """The card of one endpoint."""

    def __init__(self, connection: Connection, endpoint: Endpoint) -> None:
        self._connection, self._endpoint = connection, endpoint
        with ui.card().classes("w-full").mark(f"endpoint {endpoint['id']}"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(str(endpoint["name"])).classes("text-lg font-semibold")
                ui.label(str(endpoint["id"])).classes("font-mono text-sm text-slate-600 dark:text-slate-400")
                ui.space()
                ui.link("Run", f"/?endpoint={endpoint['id']}")
                ui.link("Jobs", f"/jobs?endpoint={endpoint['id']}")
                if connection.rights.manages:
                    ui.button("Edit", on_click=self._edit).props("flat dense no-caps")
            self._serves = ui.label().classes("text-sm")
            self._facts = ui.row().classes("w-full gap-6 flex-wrap")
            self._workers = ui.table(rows=[], columns=_WORKER_COLUMNS, row_key="id").classes("w-full")
            self._workers.props("dense flat")

    async def show(self, record: Endpoint) -> None:
        self._endpoint = endpoint = record
        health = await attempt(lambda: self._connection.client.health(endpoint["id"]))
        self._facts.clear()
        with self._facts:
            for title, text in facts_of(endpoint, health):
                with ui.column().classes("gap-0"):
                    ui.label(title).classes("text-xs text-slate-600 dark:text-slate-400")
                    ui.label(text)
        self._serves.set_text("; ".join(health.serves) if health else "")
        self._serves.set_visibility(bool(health and health.serves))
        self._workers.rows = [worker_row(worker) for worker in endpoint.get("workers") or ()]
        self._workers.set_visibility(bool(self._workers.rows))

    def _edit(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-96"):
            ui.label(f"Edit {self._endpoint['name']}").classes("text-lg font-semibold")
            typed = {
                name: ui.number(label, value=self._endpoint.get(name), min=0).classes("w-full")
                for name, label in EDITED
                if name in self._endpoint
            }

            async def save() -> None:
                changes = {
                    name: int(widget.value)
                    for name, widget in typed.items()
                    if widget.value is not None and int(widget.value) != self._endpoint.get(name)
                }
                manage = self._connection.client.manage
                done = await attempt(
                    lambda: manage.endpoints.update(self._endpoint["id"], changes), "Saved; it rolls out now"
                )
                if done is not None:
                    dialog.close()

            async def delete() -> None:
                await attempt(
                    lambda: self._connection.client.manage.endpoints.delete(self._endpoint["id"]), "Deleted"
                )
                dialog.close()

            with ui.row():
                ui.button("Save", on_click=save).props("no-caps")
                ui.button("Close", on_click=dialog.close).props("flat no-caps")
                if self._endpoint.get("origin") == "api":
                    ui.button("Delete", on_click=delete).props("flat no-caps color=negative")
        dialog.open()


_WORKER_COLUMNS = [
    {"name": "id", "label": "Worker", "field": "id", "align": "left"},
    {"name": "state", "label": "State", "field": "state", "align": "left"},
    {"name": "version", "label": "Version", "field": "version", "align": "right"},
    {"name": "node", "label": "Node", "field": "node", "align": "left"},
    {"name": "why", "label": "Why", "field": "why", "align": "left"},
]


def worker_row(worker: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": worker["id"],
        "state": str(worker.get("status", worker.get("desiredStatus", ""))).lower(),
        "version": worker.get("version", ""),
        "node": worker.get("machineId", ""),
        "why": worker.get("reason", ""),
    }


def facts_of(endpoint: Endpoint, health: Health | None) -> tuple[tuple[str, str], ...]:
    """Returns what a card shows of an endpoint, each with its title."""
    if health is None:
        return (("State", "not known"),)
    most = endpoint.get("workersMax")
    return (
        ("Queue", words.counted(health.jobs, "inQueue", "inProgress")),
        ("Ended", words.counted(health.jobs, "completed", "failed", "retried")),
        (
            "Workers",
            words.counted(health.workers, "running", "idle", "initializing", "throttled", "unhealthy"),
        ),
        ("Bounds", f"{endpoint.get('workersMin', 0)} to {most}" if most is not None else "–"),
        ("Version", str(endpoint.get("version", "–"))),
        ("Runs on", str(endpoint.get("computeType", "–"))),
    )


async def _create(connection: Connection) -> None:
    templates = await attempt(connection.client.manage.templates.list) or []
    with ui.dialog() as dialog, ui.card().classes("w-96"):
        ui.label("Create an endpoint").classes("text-lg font-semibold")
        if not templates:
            ui.label("There is no template yet. `stoker template create --help` shows how to make one.")
        name = ui.input("Name").classes("w-full")
        choices = {one["id"]: one["name"] for one in templates}
        template = ui.select(choices, label="Template").classes("w-full")
        most = ui.number("Workers at most", value=1, min=0).classes("w-full")
        more = ui.textarea("More fields, as JSON", value="{}").classes("w-full font-mono")

        async def save() -> None:
            async def create() -> Any:
                extra = json.loads(more.value or "{}")
                fields = {
                    "name": name.value,
                    "templateId": template.value,
                    "workersMax": int(most.value or 0),
                }
                return await connection.client.manage.endpoints.create({**fields, **extra})

            if await attempt(create, "Created") is not None:
                dialog.close()

        with ui.row():
            ui.button("Create", on_click=save).props("no-caps")
            ui.button("Close", on_click=dialog.close).props("flat no-caps")
    dialog.open()
