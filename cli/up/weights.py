"""The weights of the hosted models, made ready before control starts. Downloads none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stoker.models.weights import fetch, folder_of, read_lock, verify


def prepare(wanted: Mapping[str, Path | None], folder: Path) -> None:
    """Builds weights that Stoker builds itself, and verifies those that `stoker weights fetch` downloads.
    `wanted`: entries by name, each with its lock file unless that is this installation's."""
    for name, lock_file in wanted.items():
        entry = read_lock(lock_file).entry(name)
        if entry.is_built:
            fetch(entry, folder_of(entry, folder))
        else:
            verify(entry, folder_of(entry, folder))
