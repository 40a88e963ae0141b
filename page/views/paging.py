"""The buttons of a long list, which the API answers page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui


class Pager:
    """The place in a list. `cursors` are those of the pages up to the one that is shown; `load` reads that
    page, and calls `shown` with the cursor of the next one."""

    def __init__(self, load: Callable[[], Awaitable[None]], back: str = "Previous", on: str = "Next") -> None:
        self._load, self._names = load, (back, on)
        self._cursors: list[str | None] = [None]
        self._next: str | None = None

    def draw(self) -> None:
        with ui.row().classes("gap-2") as self._row:
            self._back = ui.button(self._names[0], icon="chevron_left", on_click=self._go_back).props("flat")
            self._on = ui.button(self._names[1], icon="chevron_right", on_click=self._go_on).props("flat")
        self.shown(None)

    @property
    def cursor(self) -> str | None:
        return self._cursors[-1]

    def begin(self) -> None:
        """Goes to the first page."""
        self._cursors = [None]

    def shown(self, following: str | None) -> None:
        self._next = following
        self._back.set_enabled(len(self._cursors) > 1)
        self._on.set_enabled(following is not None)
        self._row.set_visibility(len(self._cursors) > 1 or following is not None)

    async def _go_back(self) -> None:
        self._cursors.pop()
        await self._load()

    async def _go_on(self) -> None:
        self._cursors.append(self._next)
        await self._load()


def next_of(found: Sequence[Mapping[str, Any]], limit: int) -> str | None:
    """Returns the cursor of the page behind a page of records: none where this one is not full."""
    return str(found[-1]["id"]) if len(found) == limit else None
