"""The events of an image that is streamed, in the shape of the OpenAI API. Pure.

    a preview that is due   image_generation.partial_image, image_edit.partial_image
    the image               image_generation.completed, image_edit.completed

Previews are small, and there may be many, or few: as many as are wanted are taken at equal distances of the
steps. The tokens of `usage` are units of ours, since the service has no tokenizer and bills pixels: four
characters of the prompt, begun or whole, and squares of 16 x 16 pixels, as most of the networks work on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic_core import to_json

CHARACTERS, SIDE = 4, 16
"""The characters of a token of text, and the pixels of a side of a token of an image."""

GENERATION, EDIT = "image_generation", "image_edit"


class Preview(Struct, frozen=True):
    """A small image in base64 that was made at a step. `steps`, of which there are, may be unknown."""

    data: str
    image_format: str
    size: str
    step: int | None
    steps: int | None

    def is_due(self, sent: int, wanted: int) -> bool:
        """Returns whether this preview is sent, after so many others of all that are wanted."""
        if sent >= wanted:
            return False
        if self.step is None or self.steps is None:
            return True
        return self.step * (wanted + 1) >= self.steps * (sent + 1)


def preview_of(chunk: Any) -> Preview | None:
    """Returns the preview in a chunk; None if it has none."""
    match chunk:
        case {"preview": {"data": str(data), "format": ("png" | "jpeg" | "webp") as kind, **rest}}:
            size = f"{rest.get('width')}x{rest.get('height')}"
            return Preview(data, kind, size, _whole(rest.get("step")), _whole(rest.get("steps")))
    return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def partial_image(kind: str, index: int, preview: Preview, at: float) -> bytes:
    fields = _fields(preview.data, preview.image_format, preview.size, at)
    return _event(f"{kind}.partial_image", {**fields, "partial_image_index": index})


class Made(Struct, frozen=True):
    """A finished image in base64. `seed` and `usage` are None where they are not known."""

    data: str
    image_format: str
    size: str
    seed: Any = None
    usage: Mapping[str, Any] | None = None


def completed(kind: str, made: Made, at: float) -> bytes:
    known = {name: value for name in ("seed", "usage") if (value := getattr(made, name)) is not None}
    return _event(f"{kind}.completed", _fields(made.data, made.image_format, made.size, at) | known)


def usage(prompt: Any, width: Any, height: Any, *, images: int) -> Mapping[str, Any] | None:
    """Returns what an image used; None where the job has no prompt or no size. `images`: how many it starts
    from or looks at; each counts as one of its size."""
    if not (isinstance(prompt, str) and isinstance(width, int) and isinstance(height, int)):
        return None
    text, image = -(-len(prompt) // CHARACTERS), -(-width // SIDE) * -(-height // SIDE)
    sent = images * image
    return {
        "input_tokens": text + sent,
        "input_tokens_details": {"image_tokens": sent, "text_tokens": text},
        "output_tokens": image,
        "total_tokens": text + sent + image,
    }


def _fields(data: str, image_format: str, size: str, at: float) -> dict[str, Any]:
    return {
        "b64_json": data,
        "created_at": int(at),
        "size": size,
        "quality": "auto",
        "background": "opaque",
        "output_format": image_format,
    }


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json({"type": kind, **fields}))
