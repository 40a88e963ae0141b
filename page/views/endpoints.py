"""The endpoints, page by page, with their queues and workers as they are now; one is created here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from stoker.page.access.connections import Connection
from stoker.page.content import words
from stoker.page.views.frame import attempt, empty, frame, keep_live, titled_dialog
from stoker.page.views.paging import Pager, next_of
from stoker.page.views.style import MONO, QUIET, TITLE, fact

Endpoint = Mapping[str, Any]

PAGE = 20


async def show(connection: Connection) -> None:
    """Draws the endpoints that the key may see, and looks again while the page is open."""
    with frame(connection, "/endpoints", "Endpoints"):
        if connection.rights.manages:
            create = ui.button("Create an endpoint", icon="add", on_click=lambda: _create(connection))
            create.classes("self-start")
        await EndpointList(connection).draw()


class EndpointList:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pager = Pager(self._load)

    async def draw(self) -> None:
        self._place = ui.column().classes("w-full gap-4")
        self._cards: dict[str, EndpointCard] = {}
        self._pager.draw()
        await self._load()
        keep_live(self._load)

    async def _load(self) -> None:
        found = await attempt(lambda: self._connection.endpoints_with_health(PAGE, self._pager.cursor))
        if found is None:
            self._pager.begin()  # the endpoint behind which the page began is gone
            return
        self._pager.shown(next_of(found, PAGE))
        if [one["id"] for one in found] != list(self._cards) or not found:
            self._place.clear()
            with self._place:
                self._cards = {one["id"]: EndpointCard(one) for one in found}
                if not found:
                    empty("There is no endpoint yet.\nCreate one here, or declare one in stoker.toml.", "lan")
        for one in found:
            self._cards[one["id"]].show(one)


class EndpointCard:
    """The card of one endpoint in the list."""

    def __init__(self, endpoint: Endpoint) -> None:
        with ui.card().mark(f"endpoint {endpoint['id']}"):
            with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
                ui.link(str(endpoint["name"]), f"/endpoints/{endpoint['id']}").classes(TITLE)
                ui.label(str(endpoint["id"])).classes(MONO)
                ui.space()
                ui.link("Run", f"/?endpoint={endpoint['id']}")
                ui.link("Jobs", f"/jobs?endpoint={endpoint['id']}")
            self._serves = ui.label().classes(f"text-sm {QUIET}")
            self._facts = ui.element().classes("facts w-full")

    def show(self, endpoint: Endpoint) -> None:
        self._facts.clear()
        with self._facts:
            for title, text in facts_of(endpoint):
                fact(title, text)
        self._serves.set_text("; ".join(endpoint["health"].get("serves", ())))
        self._serves.set_visibility(bool(self._serves.text))


def facts_of(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Returns what is shown of an endpoint with its health, each with its title."""
    most, health = endpoint.get("workersMax"), endpoint["health"]
    jobs, workers = health["jobs"], health["workers"]
    return (
        ("Queue", words.counted(jobs, inQueue="waiting", inProgress="running")),
        ("Ended", words.counted(jobs, completed="completed", failed="failed", retried="retried")),
        (
            "Workers",
            words.counted(
                workers,
                running="running",
                idle="idle",
                initializing="starting",
                throttled="throttled",
                unhealthy="unhealthy",
            ),
        ),
        ("Bounds", f"{endpoint.get('workersMin', 0)} to {most}" if most is not None else "–"),
        ("Version", str(endpoint.get("version", "–"))),
        ("Runs on", str(endpoint.get("computeType", "–"))),
    )


async def _create(connection: Connection) -> None:
    templates = await attempt(connection.client.manage.templates.list) or []
    with titled_dialog("Create an endpoint") as dialog:
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

            made = await attempt(create, "Created")
            if made is not None:
                dialog.close()
                ui.navigate.to(f"/endpoints/{made['id']}")

        with ui.row():
            ui.button("Create", on_click=save)
            ui.button("Close", on_click=dialog.close).props("flat")
