"""The dialog of a log that is followed while the dialog is open."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from nicegui import ui

from stoker.client import Event
from stoker.client.errors import ClientError
from stoker.page.content import words
from stoker.page.views.frame import titled_dialog

LINES_MOST = 1000


async def follow_log(title: str, lines: AsyncGenerator[Event, None]) -> None:
    """Shows the lines of a log as they come, until the log ends or the dialog is closed."""
    with titled_dialog(title, "!max-w-4xl") as dialog:
        log = ui.log(max_lines=LINES_MOST).classes("w-full h-96")
        log.props('role=log aria-label="Log" tabindex=0')
        ui.button("Close", on_click=dialog.close).props("flat")
    try:
        async with aclosing(lines) as happened:
            async for one in happened:
                if not dialog.value:
                    return
                if one.kind == "log":
                    log.push(words.log_line_of(one.value))
    except ClientError as error:
        log.push(f"the log cannot be followed: {error}")
