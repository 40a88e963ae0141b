"""The local file of live endpoints, `.stoker/dev.json`: their ids and the hashes of their configurations.

    {"format": 1, "endpoints": {"live-caption": {"id": "...", "template": "...", "hash": "..."}}}

It saves an update of every endpoint at each start; the platform decides which endpoints exist. A file that
cannot be read is built again from what the platform has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stoker.cli.data_folder import write_private
from stoker.cli.dev.live_endpoints.plan import Cached
from stoker.cli.errors import CliError

FORMAT = 1
NAME = "dev.json"


class CacheBroken(Exception):
    """The file is not a cache of this format; the message says why."""


def parse(text: str) -> dict[str, Cached]:
    """Raises CacheBroken."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CacheBroken(f"it is not JSON: {error}") from None
    match content:
        case {"format": 1, "endpoints": dict(endpoints)}:
            return {name: _cached(name, fields) for name, fields in endpoints.items()}
        case {"format": other} if other != FORMAT:
            raise CacheBroken(f"its format is {other!r}, and this version reads {FORMAT}")
    raise CacheBroken("it has no endpoints")


def _cached(name: str, fields: Any) -> Cached:
    match fields:
        case {"id": str(id_), "template": str(template), "hash": str(hash_)}:
            return Cached(id_, template, hash_)
    raise CacheBroken(f"{name} has no id, template and hash")


def as_text(endpoints: Mapping[str, Cached]) -> str:
    content = {name: asdict(one) for name, one in sorted(endpoints.items())}
    return json.dumps({"format": FORMAT, "endpoints": content}, indent=2) + "\n"


def read(folder: Path) -> tuple[dict[str, Cached], str | None]:
    """Returns the endpoints, and a sentence if the file cannot be used."""
    path = folder / NAME
    try:
        return parse(path.read_text(encoding="utf-8")), None
    except FileNotFoundError:
        return {}, None
    except (OSError, UnicodeDecodeError, CacheBroken) as error:
        return {}, f"{path} cannot be used and is built again: {error}"


def write(folder: Path, endpoints: Mapping[str, Cached]) -> None:
    """Replaces the file. Raises CliError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(folder / NAME, as_text(endpoints))
    except OSError as error:
        raise CliError(f"{folder / NAME} cannot be written: {error.strerror}") from error
