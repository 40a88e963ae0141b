"""Pictures, films and sounds in a job's output. Pure.

Only addresses with the scheme http or https, and base64 data of a known kind, are shown as media: everything
else of an output is shown as text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from stoker.client import Event

Kind = Literal["image", "video", "audio"]

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".gif"), "image"),
    **dict.fromkeys((".mp4", ".webm", ".mov"), "video"),
    **dict.fromkeys((".wav", ".mp3", ".flac", ".ogg", ".m4a"), "audio"),
}
NAMED: Mapping[str, Kind] = {"image_url": "image", "video_url": "video", "audio_url": "audio"}
PREVIEWS = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp"}
MOST = 50


@dataclass(frozen=True, slots=True)
class Medium:
    """A picture, film or sound at an address."""

    kind: Kind
    url: str


def media_of(output: Any) -> tuple[Medium, ...]:
    """Returns the media in an output, in its order, each address once."""
    found = dict.fromkeys(_walk(output, "", 0))
    return tuple(found)[:MOST]


def _walk(value: Any, name: str, depth: int) -> Iterator[Medium]:
    if depth > 20:
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _walk(part, str(key), depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _walk(part, name, depth + 1)
    elif isinstance(value, str) and (kind := kind_of(value, name)) is not None:
        yield Medium(kind, value)


def kind_of(url: str, name: str = "") -> Kind | None:
    """Returns what an address is likely to show, by its ending or by the name of its field."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return None
    return KINDS.get(PurePosixPath(parts.path).suffix.lower()) or NAMED.get(name)


def partial_of(event: Event) -> Any:
    """Returns the partial output or progress in a job's event; None where there is none."""
    return event.value.get("output") if isinstance(event.value, Mapping) else None


def preview_of(partial: Any) -> str | None:
    """Returns the preview of a partial output as a `data:` address, or None."""
    match partial:
        case {"preview": {"format": str(name), "data": str(data)}} if name in PREVIEWS and _is_base64(data):
            return f"data:{PREVIEWS[name]};base64,{data}"
    return None


def film_of(partial: Any) -> bytes | None:
    """Returns the next bytes of a film that is being made, or None."""
    match partial:
        case {"video": {"data": str(data)}} if _is_base64(data):
            return base64.b64decode(data)
    return None


def progress_of(partial: Any) -> tuple[float, str] | None:
    """Returns how much is done, from 0 to 1, and the same in words; None if the output says nothing of it."""
    match partial:
        case {"chunk": int(chunk), "chunks": int(chunks), "step": int(step), "steps": int(steps)} if (
            chunks > 0 < steps
        ):
            done = (chunk - 1 + step / steps) / chunks
            return min(1.0, max(0.0, done)), f"chunk {chunk} of {chunks}, step {step} of {steps}"
        case {"step": int(step), "steps": int(steps)} if steps > 0:
            return min(1.0, max(0.0, step / steps)), f"step {step} of {steps}"
    return None


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
