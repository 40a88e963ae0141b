"""The frame of every page: the header with its links, dark or light, and how errors are shown."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from nicegui import ui

from stoker.client.errors import ClientError
from stoker.page.access.connections import Connection
from stoker.page.views.style import QUIET, TITLE, heading

T = TypeVar("T")

PAGES = (
    ("/", "Playground", "auto_awesome"),
    ("/jobs", "Jobs", "list_alt"),
    ("/endpoints", "Endpoints", "lan"),
    ("/fleet", "Fleet", "dns"),
    ("/billing", "Billing", "payments"),
    ("/resources", "Resources", "inventory_2"),
)
LIVE_S, LATEST_S, SPARED = 3.0, 6.0, 150
"""The seconds between two looks of a page that stays open: at least, at most, and as a multiple of how long
the look took, so that a large platform is asked less often."""


MODES: Mapping[bool | None, tuple[str, str, bool | None]] = {
    None: ("brightness_auto", "Dark or light, as the system", True),
    True: ("dark_mode", "Dark", False),
    False: ("light_mode", "Light", None),
}
"""For each mode: its icon, its name, and the mode that follows it."""


@contextmanager
def frame(connection: Connection, path: str, title: str) -> Iterator[None]:
    """Draws the header, and the page's content inside of the block."""
    ui.page_title(f"{title} · Stoker")
    with (
        ui.header()
        .classes("items-center no-wrap gap-2 px-3 py-2 bg-slate-900 text-white")
        .props("role=banner")
    ):
        with ui.row().classes("items-center gap-1 mr-2 no-wrap max-sm:hidden"):
            ui.icon("local_fire_department", size="24px").classes("text-orange-400").props("aria-hidden=true")
            ui.label("Stoker").classes("text-lg font-bold")
        with ui.element("nav").classes("flex flex-nowrap gap-1").props('aria-label="Pages"'):
            for target, label, icon in PAGES:
                _link(target, label, icon, target == path)
        ui.space()
        _mode(connection)
        with ui.element("form").props('method="post" action="/sign-out"'):
            ui.button(icon="logout").props('flat round dense color=white type=submit aria-label="Sign out"')
    with ui.column().classes("w-full max-w-6xl mx-auto p-4 gap-4 items-stretch"):
        heading(title, 1)
        yield


def _link(target: str, label: str, icon: str, here: bool) -> None:
    link = ui.link(target=target).classes(
        "no-underline !text-white p-2 lg:px-3 lg:py-1.5 rounded-lg flex items-center gap-2 hover:bg-slate-700"
    )
    if here:
        link.classes("bg-slate-700").props("aria-current=page")
    with link:
        ui.icon(icon, size="20px").props("aria-hidden=true")
        ui.label(label).classes("max-lg:hidden text-sm")
    link.props["aria-label"] = label


def _mode(connection: Connection) -> None:
    """Draws the button that changes between dark and light, which is kept for the key's other pages."""
    dark = ui.dark_mode(connection.dark)
    button = ui.button().props("flat round dense color=white")

    def show() -> None:
        icon, name, _ = MODES[connection.dark]
        button.props["aria-label"] = name
        button.set_icon(icon)

    def change() -> None:
        connection.dark = MODES[connection.dark][2]
        dark.set_value(connection.dark)
        show()

    button.on_click(change)
    show()


@contextmanager
def titled_dialog(title: str, width: str = "!max-w-md") -> Iterator[ui.dialog]:
    """Opens a dialog, with the block's content below its title."""
    with ui.dialog() as made, ui.card().classes(width):
        made.props["aria-label"] = title
        ui.label(title).classes(TITLE)
        yield made
    made.open()


def empty(text: str, icon: str = "inbox") -> None:
    """Says what to do where there is nothing to show."""
    with ui.card().classes("items-center p-8"):
        ui.icon(icon, size="40px").classes(QUIET).props("aria-hidden=true")
        ui.label(text).classes(f"{QUIET} text-center whitespace-pre-line")


def keep_live(look: Callable[[], Awaitable[None]]) -> None:
    """Looks again, again and again, while the page is open."""

    async def timed() -> None:
        began = time.monotonic()
        await look()
        timer.interval = min(LATEST_S, max(LIVE_S, SPARED * (time.monotonic() - began)))

    timer = ui.timer(LIVE_S, timed, immediate=False)


async def attempt(action: Callable[[], Awaitable[T]], done: str = "") -> T | None:
    """Awaits the action. Shows the error's sentence and returns None where it fails, `done` where it does
    not."""
    try:
        result = await action()
    except (ClientError, ValueError) as error:
        ui.notify(str(error), type="negative", multi_line=True, close_button="Close")
        return None
    if done:
        ui.notify(done, type="positive")
    return result
