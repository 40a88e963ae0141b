"""A job's output on a page: pictures, films and sounds from their addresses, everything else as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from stoker.page.content.media import media_of
from stoker.page.views.style import QUIET

TEXT_MOST = 20_000


def show_output(output: Any, *, small: bool = False, alt: str = "The picture") -> None:
    """Shows the media of an output; with `small` nothing else, unless it has none. `alt` says what a picture
    shows."""
    found = media_of(output)
    for medium in found[:1] if small else found:
        match medium.kind:
            case "image":
                ui.image(medium.url).classes("w-full rounded-lg").props["alt"] = alt
            case "video":
                ui.video(f"{medium.url}#t=0.5" if small else medium.url).classes("w-full rounded-lg").props[
                    "aria-label"
                ] = alt
            case "audio":
                ui.audio(medium.url).classes("w-full").props["aria-label"] = alt
    if not found:
        show_text(output, 300 if small else TEXT_MOST)
    elif not small:
        for note in notes_of(output):
            ui.label(note).classes(f"text-sm {QUIET}")
        with ui.expansion("The output as JSON").props("dense").classes("w-full"):
            show_text(output)


def notes_of(output: Any) -> list[str]:
    """Returns what an output says in sentences about itself."""
    notes = output.get("notes") if isinstance(output, Mapping) else None
    return [note[:500] for note in notes if isinstance(note, str)][:10] if isinstance(notes, list) else []


def show_text(value: Any, most: int = TEXT_MOST) -> None:
    """Shows a value as text: a string as it is, everything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    shown = text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} more characters"
    ui.label(shown).classes("font-mono text-xs whitespace-pre-wrap break-all w-full")
