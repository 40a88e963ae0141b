"""Keys, secrets, volumes, pods, templates, registries and the audit log, each as a table with its actions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from stoker.client.errors import ClientError
from stoker.client.management import Management
from stoker.page.access.connections import Connection
from stoker.page.views.frame import attempt, frame

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: how it is listed, which columns are shown, and what may be done with a row."""

    title: str
    columns: tuple[str, ...]
    list: Callable[[Management], Awaitable[Any]]
    actions: Mapping[str, Callable[[Management, str], Awaitable[Any]]]
    nothing: str
    key: str = "id"


KINDS = (
    Kind(
        "Pods",
        ("id", "name", "desiredStatus", "image", "costPerHr", "machineId"),
        lambda manage: manage.pods.list(),
        {
            "Start": lambda manage, member: manage.pods.start(member),
            "Stop": lambda manage, member: manage.pods.stop(member),
            "Restart": lambda manage, member: manage.pods.restart(member),
            "Delete": lambda manage, member: manage.pods.delete(member),
        },
        "No pod. `stoker pod create --help` shows how to make one.",
    ),
    Kind(
        "Volumes",
        ("id", "name", "size", "dataCenterId"),
        lambda manage: manage.volumes.list(),
        {"Delete": lambda manage, member: manage.volumes.delete(member)},
        "No volume. `stoker volume create --help` shows how to make one.",
    ),
    Kind(
        "Templates",
        ("id", "name", "imageName", "isServerless"),
        lambda manage: manage.templates.list(),
        {"Delete": lambda manage, member: manage.templates.delete(member)},
        "No template. `stoker template create --help` shows how to make one.",
    ),
    Kind(
        "Keys",
        ("id", "name", "kind", "access", "createdAt", "expiresAt", "lastUsedAt"),
        lambda manage: manage.keys.list(),
        {"Revoke": lambda manage, member: manage.keys.delete(member)},
        "No key but those of this host's files.",
    ),
    Kind(
        "Secrets",
        ("name", "createdAt", "updatedAt"),
        lambda manage: manage.secrets.list(),
        {"Delete": lambda manage, member: manage.secrets.delete(member)},
        "No secret. `stoker secret set NAME` stores one.",
        "name",
    ),
    Kind(
        "Audit",
        ("at", "key", "method", "path", "status", "message"),
        lambda manage: manage.audit(),
        {},
        "Nothing was changed yet.",
    ),
)


async def show(connection: Connection, chosen: str = "") -> None:
    """Draws the tabs, with the chosen kind's table."""
    with frame("/resources", "Resources"):
        titles = [kind.title for kind in KINDS]
        with ui.tabs().props("no-caps inline-label").classes("w-full") as tabs:
            for title in titles:
                ui.tab(title)
        with ui.tab_panels(tabs, value=chosen if chosen in titles else titles[0]).classes("w-full"):
            for kind in KINDS:
                with ui.tab_panel(kind.title):
                    await ResourceTable(connection, kind).draw()


class ResourceTable:
    """The table of one kind. Actions are for the row that is chosen."""

    def __init__(self, connection: Connection, kind: Kind) -> None:
        self._connection, self._kind = connection, kind

    async def draw(self) -> None:
        columns = [
            {"name": name, "label": _words(name), "field": name, "align": "left"}
            for name in self._kind.columns
        ]
        self._table = ui.table(rows=[], columns=columns, row_key="row", selection="single").classes("w-full")
        self._nothing = ui.label().classes("text-slate-600 dark:text-slate-400")
        if self._connection.rights.manages:
            with ui.row():
                for name in self._kind.actions:
                    ui.button(name, on_click=lambda event, name=name: self._do(name)).props("outline no-caps")
        await self._load()

    async def _load(self) -> None:
        try:
            rows = await self._kind.list(self._connection.client.manage)
        except ClientError as error:
            self._nothing.set_text(str(error))
            return
        shown = [row_of(row, self._kind.columns, number) for number, row in enumerate(rows)]
        self._table.rows = shown
        self._table.set_visibility(bool(shown))
        self._nothing.set_text("" if shown else self._kind.nothing)

    async def _do(self, name: str) -> None:
        if not self._table.selected:
            ui.notify("Choose a row first.", type="warning")
            return
        member = str(self._table.selected[0][self._kind.key])
        action, manage = self._kind.actions[name], self._connection.client.manage
        await attempt(lambda: action(manage, member), f"{name}: done")
        self._table.selected = []
        await self._load()


def row_of(row: Row, columns: tuple[str, ...], number: int) -> dict[str, Any]:
    """Returns what a table shows of a resource: values that are not text or numbers as JSON."""
    shown: dict[str, Any] = {"row": number}
    for name in columns:
        value = row.get(name)
        shown[name] = (
            value if isinstance(value, str | int | float) else "" if value is None else json.dumps(value)
        )
    return shown


def _words(name: str) -> str:
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip().capitalize()
