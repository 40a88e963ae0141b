"""The fleet: nodes and their devices with what runs on each, as they are now; drained and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from stoker.page.access.connections import Connection
from stoker.page.content import words
from stoker.page.views.frame import attempt, empty, frame, live_cards

Node = Mapping[str, Any]

_DEVICE_COLUMNS = [
    {"name": "name", "label": "Device", "field": "name", "align": "left"},
    {"name": "memory", "label": "Memory", "field": "memory", "align": "right"},
    {"name": "utilization", "label": "Used", "field": "utilization", "align": "right"},
    {"name": "temperature", "label": "Temperature", "field": "temperature", "align": "right"},
    {"name": "health", "label": "Health", "field": "health", "align": "left"},
    {"name": "runs", "label": "Runs", "field": "runs", "align": "left"},
]


async def show(connection: Connection) -> None:
    """Draws every node, and looks again while the page is open."""
    with frame("/fleet", "Fleet"):
        if not connection.rights.looks:
            empty("Your key may not look at nodes.")
            return
        nothing = "No host has joined.\nStart `stoker agent` on one, with a join token."
        nodes = connection.client.manage.nodes
        await live_cards(nodes.list, lambda one: NodeCard(connection, one), nothing)


class NodeCard:
    """The card of one node."""

    def __init__(self, connection: Connection, node: Node) -> None:
        self._connection, self._node = connection, node
        with ui.card().classes("w-full").mark(f"node {node['id']}"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(str(node["name"])).classes("text-lg font-semibold")
                ui.label(str(node["id"])).classes("font-mono text-sm text-slate-600 dark:text-slate-400")
                self._state = ui.badge("").props("outline")
                ui.space()
                self._drain = ui.button("Drain", on_click=self._do_drain).props("flat dense no-caps")
                self._resume = ui.button("Resume", on_click=self._do_resume).props("flat dense no-caps")
            self._about = ui.label().classes("text-sm text-slate-600 dark:text-slate-400")
            self._devices = ui.table(rows=[], columns=_DEVICE_COLUMNS, row_key="id").classes("w-full")
            self._devices.props("dense flat")

    async def show(self, record: Node) -> None:
        self._node = node = record
        state = state_of(node)
        self._state.set_text(state)
        self._state.props(f"color={'positive' if state == 'connected' else 'warning'}")
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
        "utilization": f"{utilization} %" if utilization is not None else "–",
        "temperature": f"{temperature} °C" if temperature is not None else "–",
        "health": str(device.get("ill") or "well"),
        "runs": ", ".join(
            held["endpointId"] for held in device.get("heldBy") or () if held.get("endpointId")
        ),
    }
