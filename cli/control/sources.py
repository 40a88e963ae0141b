"""Digests of the source of endpoints' handlers. A digest is part of the version's environment, so that
changed code is a new version: control rolls it out as any other, and an old worker ends its job first.

The source of a handler is the Python files in and below its folder, without other endpoints' own files; of a
program, all executable files there, too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from stoker.control.rules.types import Endpoint

VARIABLE = "STOKER_SOURCE"
"""The variable in the environment of a version's workers."""


def with_sources(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    digests = sources(endpoints)
    return [
        replace(one, run=replace(one.run, env={**one.run.env, VARIABLE: digests[one.id]}))
        if one.id in digests
        else one
        for one in endpoints
    ]


def sources(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    """Returns the digests by endpoint, for handlers on this machine."""
    locations = {one.id: _location(one) for one in endpoints if not one.hosted and not one.run.image}
    return {id_: _digest(path, set(locations.values()) - {path}) for id_, path in locations.items()}


def _location(endpoint: Endpoint) -> Path:
    """Returns the handler's file, or a program's folder."""
    handler = endpoint.run.handler
    return Path(handler if endpoint.run.kind != "python" else handler.rpartition(":")[0])


def _digest(location: Path, others: Collection[Path]) -> str:
    sha = hashlib.sha256()
    folder = location if location.is_dir() else location.parent
    for file in sorted(_files(folder, programs=location.is_dir())):
        if file not in others:
            try:
                content = file.read_bytes()
            except OSError:
                continue  # removed in the meantime
            sha.update(f"{file.relative_to(folder)}\0{len(content)}\0".encode(errors="surrogateescape"))
            sha.update(content)
    return sha.hexdigest()[:16]


def _files(folder: Path, *, programs: bool) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            path = Path(where, name)
            if path.suffix == ".py" or (programs and os.access(path, os.X_OK)):
                yield path
