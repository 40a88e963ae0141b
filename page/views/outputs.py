"""A job's output on a page: pictures, films and sounds from their addresses, everything else as text."""

from __future__ import annotations

import json
from typing import Any

from nicegui import ui

from stoker.page.content.media import media_of

TEXT_MOST = 20_000


def show_output(output: Any, *, small: bool = False) -> None:
    """Shows the media of an output; with `small` nothing else, unless it has none."""
    found = media_of(output)
    for medium in found[:1] if small else found:
        match medium.kind:
            case "image":
                ui.image(medium.url).classes("w-full rounded").props('alt="The picture"')
            case "video":
                ui.video(medium.url).classes("w-full rounded")
            case "audio":
                ui.audio(medium.url).classes("w-full")
    if not small or not found:
        show_text(output, 300 if small else TEXT_MOST)


def show_text(value: Any, most: int = TEXT_MOST) -> None:
    """Shows a value as text: a string as it is, everything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    shown = text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} more characters"
    ui.label(shown).classes("font-mono text-xs whitespace-pre-wrap break-all w-full")
