"""The frame of every page: the header with its links, dark or light, and how errors are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from nicegui import ui

from stoker.client.errors import ClientError

T = TypeVar("T")

PAGES = (
    ("/", "Playground", "auto_awesome"),
    ("/jobs", "Jobs", "list_alt"),
    ("/endpoints", "Endpoints", "lan"),
    ("/fleet", "Fleet", "dns"),
    ("/billing", "Billing", "payments"),
    ("/resources", "Resources", "inventory_2"),
)
LIVE_S = 3.0
"""The seconds between two looks of a page that stays open."""


@contextmanager
def frame(path: str, title: str) -> Iterator[None]:
    """Draws the header, and the page's content inside of the block."""
    ui.page_title(f"{title} · Stoker")
    dark = ui.dark_mode(None)
    ui.colors(primary="#c2410c", secondary="#475569", accent="#0f766e")
    with ui.header().classes("items-center gap-1 px-4 py-2 bg-slate-900 text-white").props("role=banner"):
        ui.label("Stoker").classes("text-lg font-bold mr-3")
        with ui.element("nav").classes("flex flex-wrap gap-1").props('aria-label="Pages"'):
            for target, label, icon in PAGES:
                link = ui.link(target=target).classes(
                    "no-underline text-white px-2 py-1 rounded flex items-center gap-1"
                )
                if target == path:
                    link.classes("bg-slate-700").props("aria-current=page")
                with link:
                    ui.icon(icon).props("aria-hidden=true")
                    ui.label(label).classes("max-sm:hidden")
                link.props(f'aria-label="{label}"')
        ui.space()
        ui.button(icon="contrast", on_click=lambda: dark.set_value(not dark.value)).props(
            'flat round color=white aria-label="Dark or light"'
        )
        with ui.element("form").props('method="post" action="/sign-out"'):
            ui.button("Sign out").props("flat color=white type=submit no-caps")
    with ui.column().classes("w-full max-w-6xl mx-auto p-4 gap-4"):
        ui.label(title).classes("text-2xl font-semibold").props("role=heading aria-level=1")
        yield


def empty(text: str) -> None:
    """Says what to do where there is nothing to show."""
    with ui.card().classes("w-full items-center p-8"):
        ui.label(text).classes("text-slate-600 dark:text-slate-300 text-center whitespace-pre-line")


class Card(Protocol):
    """A card on a page that is drawn once, and shows its record as it is now."""

    async def show(self, record: Mapping[str, Any]) -> None: ...


async def live_cards(
    read: Callable[[], Awaitable[Any]], make: Callable[[Mapping[str, Any]], Card], nothing: str
) -> None:
    """Draws a card for each record that `read` returns, and looks again while the page is open. Cards are
    drawn again only where records came or went."""
    place = ui.column().classes("w-full gap-4")
    cards: dict[str, Card] = {}

    async def look() -> None:
        found = await attempt(read)
        if found is None:
            return
        if {one["id"] for one in found} != set(cards):
            place.clear()
            cards.clear()
            with place:
                cards.update({one["id"]: make(one) for one in found})
                if not found:
                    empty(nothing)
        for one in found:
            await cards[one["id"]].show(one)

    await look()
    ui.timer(LIVE_S, look)


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
