"""The fleet: nodes and their devices with what runs on each, as they are now; drained and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from stoker.page.access.connections import Connection
from stoker.page.content import words
from stoker.page.views.frame import attempt, empty, frame, keep_live
from stoker.page.views.paging import Pager, next_of
from stoker.page.views.style import BAR_CELL, MONO, QUIET, STATE_CELL, TITLE, column

Node = Mapping[str, Any]

PAGE = 20
STATES = ("any", "connected", "silent", "gone")
COLOURS = {"connected": "positive", "silent": "negative", "revoked": "negative", "gone": "secondary"}

_COLUMNS = [
    column("name", "Device"),
    column("memory", "Memory"),
    column("utilization", "Used"),
    column("temperature", "Temperature"),
    column("health", "Health"),
    column("runs", "Runs"),
]


async def show(connection: Connection) -> None:
    """Draws the nodes, page by page, and looks again while the page is open."""
    with frame(connection, "/fleet", "Fleet"):
        if not connection.rights.looks:
            empty("Your key may not look at nodes.", "dns")
            return
        await NodeList(connection).draw()


class NodeList:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pager = Pager(self._load)

    async def draw(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._state = ui.select(list(STATES), value="any", label="State", on_change=self._begin)
            self._state.classes("w-40").props('aria-label="State"')
            self._search = ui.input("Name or id", on_change=self._begin).props("clearable debounce=400")
        self._place = ui.column().classes("w-full gap-4")
        self._cards: dict[str, NodeCard] = {}
        self._pager.draw()
        await self._load()
        keep_live(self._load)

    async def _begin(self) -> None:
        self._pager.begin()
        await self._load()

    async def _load(self) -> None:
        state = None if self._state.value == "any" else self._state.value
        search = self._search.value or None
        found = await attempt(
            lambda: self._connection.client.manage.nodes.list(
                state=state, search=search, limit=PAGE, after=self._pager.cursor
            )
        )
        if found is None:
            self._pager.begin()  # the node behind which the page began is gone
            return
        self._pager.shown(next_of(found, PAGE))
        if [one["id"] for one in found] != list(self._cards) or not found:
            self._place.clear()
            with self._place:
                self._cards = {one["id"]: NodeCard(self._connection, one) for one in found}
                if not found and (state or search):
                    empty("No host is so.", "dns")
                elif not found:
                    empty("No host has joined.\nStart `stoker agent` on one, with a join token.", "dns")
        for one in found:
            self._cards[one["id"]].show(one)


class NodeCard:
    """The card of one node."""

    def __init__(self, connection: Connection, node: Node) -> None:
        self._connection, self._node = connection, node
        with ui.card().mark(f"node {node['id']}"):
            with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
                ui.label(str(node["name"])).classes(TITLE)
                ui.label(str(node["id"])).classes(MONO)
                self._state = ui.label().classes("state")
                ui.space()
                self._drain = ui.button("Drain", on_click=self._do_drain).props("outline size=sm")
                self._resume = ui.button("Resume", on_click=self._do_resume).props("outline size=sm")
            self._about = ui.label().classes(f"text-sm {QUIET}")
            self._devices = ui.table(rows=[], columns=_COLUMNS, row_key="id")
            for name in ("memory", "utilization"):
                self._devices.add_slot(f"body-cell-{name}", BAR_CELL)
            self._devices.add_slot("body-cell-health", STATE_CELL)

    def show(self, node: Node) -> None:
        self._node = node
        state = state_of(node)
        self._state.set_text(state)
        self._state.classes(replace=f"state text-{COLOURS.get(state, 'warning')}")
        manages, drained = self._connection.rights.manages, bool(node.get("drained"))
        self._drain.set_visibility(manages and not drained)
        self._resume.set_visibility(manages and drained)
        self._about.set_text(about(node))
        self._devices.rows = [device_row(device) for device in node.get("devices") or ()]

    async def _do_drain(self) -> None:
        await attempt(
            lambda: self._connection.client.manage.nodes.drain(self._node["id"]), "Nothing new is placed here"
        )

    async def _do_resume(self) -> None:
        await attempt(lambda: self._connection.client.manage.nodes.resume(self._node["id"]), "Resumed")


def state_of(node: Node) -> str:
    """Returns the state of a node in a word: what an operator did comes before what the node did."""
    if node.get("revoked"):
        return "revoked"
    if node.get("drained"):
        return "drained"
    return "leaving" if node.get("leaving") else str(node.get("state", ""))


def about(node: Node) -> str:
    """Returns what stands below a node's name."""
    facts = node.get("facts") or {}
    found = [f"last seen {str(node.get('lastSeenAt', ''))[:19].replace('T', ' ')}"]
    if facts.get("vcpus"):
        found.append(f"{facts['vcpus']} virtual CPUs")
    if str(facts.get("memory_bytes", "")).isdecimal():
        found.append(words.size(int(facts["memory_bytes"])))
    found += [f"avoided for {one['endpointId']}: {one['reason']}" for one in node.get("avoidedFor") or ()]
    found += [f"{name}={value}" for name, value in sorted((node.get("labels") or {}).items())]
    return " · ".join(found)


def device_row(device: Mapping[str, Any]) -> dict[str, Any]:
    used, all_of_it = device.get("memoryUsedInBytes"), device.get("memoryInBytes")
    temperature, utilization = device.get("temperature"), device.get("utilization")
    return {
        "id": device["id"],
        "name": f"{device.get('name', device['id'])} ({device.get('kind', '')})",
        "memory": f"{words.size(used)} of {words.size(all_of_it)}",
        "memoryShare": used / all_of_it if used is not None and all_of_it else None,
        "utilization": f"{utilization} %" if utilization is not None else "–",
        "utilizationShare": None if utilization is None else utilization / 100,
        "colour": "negative" if device.get("ill") else "positive",
        "temperature": f"{temperature} °C" if temperature is not None else "–",
        "health": str(device.get("ill") or "well"),
        "runs": ", ".join(
            held["endpointId"] for held in device.get("heldBy") or () if held.get("endpointId")
        ),
    }
