"""Keys, secrets, volumes, pods, templates and the audit log, each as a table with its actions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from stoker.client import AsyncClient, Event
from stoker.client.errors import ClientError
from stoker.client.management import Management
from stoker.page.access.connections import Connection
from stoker.page.views.frame import attempt, frame, titled_dialog
from stoker.page.views.logs import follow_log
from stoker.page.views.style import QUIET, column

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource: how it is listed, which columns are shown, what may be done with a row, and how one
    is created from typed fields. `log`: the log of one, to be followed. `once`: the field of the answer that
    is shown this once."""

    title: str
    columns: tuple[str, ...]
    list: Callable[[Management], Awaitable[Any]]
    actions: Mapping[str, Callable[[Management, str], Awaitable[Any]]]
    nothing: str
    key: str = "id"
    log: Callable[[AsyncClient, str], AsyncGenerator[Event, None]] | None = None
    create: Callable[[Management, Row], Awaitable[Any]] | None = None
    fields: tuple[str, ...] = ()
    once: str = ""


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
        "No pod yet. A pod is a container of your own on a node's docker or podman: create one.",
        log=lambda client, member: client.pod_log(member),
        create=lambda manage, fields: manage.pods.create(fields),
        fields=("name", "imageName"),
    ),
    Kind(
        "Volumes",
        ("id", "name", "size", "dataCenterId"),
        lambda manage: manage.volumes.list(),
        {"Delete": lambda manage, member: manage.volumes.delete(member)},
        "No volume yet. A volume is a folder on the nodes of a data centre: create one.",
        create=lambda manage, fields: manage.volumes.create(fields),
        fields=("name", "size", "dataCenterId"),
    ),
    Kind(
        "Templates",
        ("id", "name", "imageName", "isServerless"),
        lambda manage: manage.templates.list(),
        {"Delete": lambda manage, member: manage.templates.delete(member)},
        "No template yet. Endpoints are made from templates, which name what runs: create one.",
        create=lambda manage, fields: manage.templates.create(fields),
        fields=("name", "imageName"),
    ),
    Kind(
        "Keys",
        ("id", "name", "kind", "access", "createdAt", "expiresAt", "lastUsedAt"),
        lambda manage: manage.keys.list(),
        {"Revoke": lambda manage, member: manage.keys.delete(member)},
        "No key but those of this host's files: create one for each person and program.",
        create=lambda manage, fields: manage.keys.create(fields),
        fields=("name",),
        once="key",
    ),
    Kind(
        "Secrets",
        ("name", "createdAt", "updatedAt"),
        lambda manage: manage.secrets.list(),
        {"Delete": lambda manage, member: manage.secrets.delete(member)},
        "No secret yet. Environment variables name secrets, as {{ STOKER_SECRET_name }}: create one.",
        "name",
        create=lambda manage, fields: manage.secrets.put(fields["name"], fields["value"]),
        fields=("name", "value"),
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
    with frame(connection, "/resources", "Resources"):
        titles = [kind.title for kind in KINDS]
        with (
            ui.tabs()
            .props("no-caps inline-label align=left outside-arrows mobile-arrows")
            .classes("w-full") as tabs
        ):
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
        columns = [column(name, _words(name)) for name in self._kind.columns]
        self._table = ui.table(rows=[], columns=columns, row_key="row", selection="single")
        self._nothing = ui.label().classes(QUIET)
        with ui.row().classes("gap-2"):
            if self._connection.rights.manages and self._kind.create is not None:
                ui.button("Create", icon="add", on_click=self._create)
            with ui.row().classes("gap-2") as self._actions:
                if self._kind.log is not None:
                    ui.button("Log", on_click=self._show_log).props("outline")
                if self._connection.rights.manages:
                    for name in self._kind.actions:
                        ui.button(name, on_click=lambda event, name=name: self._do(name)).props("outline")
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
        self._actions.set_visibility(bool(shown))
        self._nothing.set_text("" if shown else self._kind.nothing)

    async def _do(self, name: str) -> None:
        if (member := self._chosen()) is None:
            return
        action, manage = self._kind.actions[name], self._connection.client.manage
        await attempt(lambda: action(manage, member), f"{name}: done")
        self._table.selected = []
        await self._load()

    async def _show_log(self) -> None:
        if self._kind.log is not None and (member := self._chosen()) is not None:
            await follow_log(f"Log of {member}", self._kind.log(self._connection.client, member))

    def _chosen(self) -> str | None:
        """Returns the id of the chosen row, or asks for one."""
        if not self._table.selected:
            ui.notify("Choose a row first.", type="warning")
            return None
        return str(self._table.selected[0][self._kind.key])

    def _create(self) -> None:
        kind, manage = self._kind, self._connection.client.manage
        with titled_dialog(f"{kind.title}: create one") as dialog:
            typed = {name: ui.input(_words(name)).classes("w-full") for name in kind.fields}
            if "value" in typed:
                typed["value"].props("type=password autocomplete=off")
            more = ui.textarea("More fields, as JSON", value="{}").classes("w-full font-mono")
            shown = ui.label().classes("font-mono text-sm break-all")

            async def save() -> None:
                async def create() -> Any:
                    assert kind.create is not None
                    given = {name: value_of(name, widget.value or "") for name, widget in typed.items()}
                    fields = {name: value for name, value in given.items() if value != ""}
                    return await kind.create(manage, {**fields, **json.loads(more.value or "{}")}) or {}

                made = await attempt(create, "Created")
                if made is not None:
                    await self._load()
                    shown.set_text(f"Shown this once: {made[kind.once]}" if kind.once else "")
                    dialog.set_value(bool(kind.once))

            with ui.row():
                ui.button("Create", on_click=save)
                ui.button("Close", on_click=dialog.close).props("flat")


def value_of(name: str, typed: str) -> Any:
    """Returns what was typed into a field: a size is a number."""
    return int(typed) if name == "size" and typed.strip().isdecimal() else typed


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
