"""The outputs of two replays, compared: equal, or the first difference. Images are compared by pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError

OUTPUT = "output.json"
"""The output, in the folder of a replay. A file of the output stands in it as `{"$file": name}`."""


def first_difference(one: Path, other: Path) -> str:
    """Returns where the outputs in two folders differ first, as a sentence; empty where they are equal."""
    return _differ("output", _read(one), _read(other), (one, other))


def _read(folder: Path) -> Any:
    try:
        return json.loads((folder / OUTPUT).read_text())
    except FileNotFoundError:
        raise CliError(f"{folder} has no {OUTPUT}: a replay that returns an output writes one") from None
    except ValueError as error:
        raise CliError(f"{folder / OUTPUT} is not the JSON of a replay: {error}") from None


def _differ(where: str, one: Any, other: Any, folders: tuple[Path, Path]) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        if "$file" in one and "$file" in other:
            return _files_differ(where, folders[0] / one["$file"], folders[1] / other["$file"])
        for name in [*one, *(name for name in other if name not in one)]:
            if name not in one or name not in other:
                return f"{where}.{name} is in {folders[0] if name in one else folders[1]} only"
            if found := _differ(f"{where}.{name}", one[name], other[name], folders):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        differ = (_differ(f"{where}[{n}]", *pair, folders) for n, pair in pairs)
        return next(filter(None, differ), "")
    if type(one) is type(other) and one == other:
        return ""
    return f"{where} is {json.dumps(one):.200} in {folders[0]} and {json.dumps(other):.200} in {folders[1]}"


def _files_differ(where: str, one: Path, other: Path) -> str:
    first, second = one.read_bytes(), other.read_bytes()
    if first == second:
        return ""
    if (pixels := _pixels_differ(one, other)) is not None:
        return pixels and f"{where}: {pixels}"
    if len(first) != len(second):
        return f"{where}: {one} has {len(first)} bytes and {other} has {len(second)}"
    at = next(n for n in range(len(first)) if first[n] != second[n])
    return f"{where}: {one} and {other} differ at byte {at}"


def _pixels_differ(one: Path, other: Path) -> str | None:
    """Returns where two images differ first; empty where no pixel does, None where one of them cannot be
    read as an image."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        return None
    try:
        with Image.open(one) as opened, Image.open(other) as second:
            pair = opened.convert("RGBA"), second.convert("RGBA")
    except (UnidentifiedImageError, OSError):
        return None
    if pair[0].size != pair[1].size:
        return (
            f"{one} is {pair[0].width} x {pair[0].height} pixels, {other} {pair[1].width} x {pair[1].height}"
        )
    texts = [image.tobytes() for image in pair]
    if texts[0] == texts[1]:
        return ""
    at = next(n for n in range(len(texts[0])) if texts[0][n] != texts[1][n]) // 4
    return f"{one} and {other} differ first at pixel {at % pair[0].width}, {at // pair[0].width}"
