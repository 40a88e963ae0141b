"""Pictures as pixels, and the cells of a terminal that they fill. Pillow decodes, where it is installed.

A cell is taken to be twice as high as wide.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

LARGEST = 1024
"""Pixels of each side; a larger preview is not drawn."""

_FORMATS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}


@dataclass(frozen=True, slots=True)
class Pixels:
    """Rows of red, green and blue, a byte each."""

    width: int
    height: int
    rgb: bytes


@dataclass(frozen=True, slots=True)
class Cells:
    columns: int
    rows: int


def can_decode() -> bool:
    return find_spec("PIL") is not None


def file_of(output: Mapping[str, Any]) -> bytes | None:
    """Returns the JPEG or PNG of a preview in a handler's output; None if it has none."""
    preview = output.get("preview")
    data = preview.get("data") if isinstance(preview, dict) else None
    if not isinstance(data, str):
        return None
    try:
        file = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return file if file.startswith(tuple(_FORMATS)) else None


def decoded(file: bytes) -> Pixels | None:
    """Returns the pixels of a file; None if it is too large, or damaged."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(file), formats=tuple(_FORMATS.values())) as image:
            if max(image.size) > LARGEST:
                return None
            plain = image.convert("RGB")
    except (OSError, SyntaxError, ValueError):
        return None
    return Pixels(plain.width, plain.height, plain.tobytes())


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    from PIL import Image

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    return Pixels(width, height, image.resize((width, height), Image.Resampling.BOX).tobytes())


def fit(width: int, height: int, most: Cells) -> Cells:
    """Returns the cells of a picture with the shape of these pixels, as large as it fits."""
    rows = max(1, min(most.rows, most.columns * height // (2 * width)))
    return Cells(max(1, min(most.columns, round(2 * rows * width / height))), rows)
