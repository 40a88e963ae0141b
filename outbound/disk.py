"""How much room a disk has, and the sentence for when it is too little."""

from __future__ import annotations

import os

from stoker.outbound.errors import ObjectStoreFull

RESERVE = 256 << 20
"""Kept free, in bytes: room for what is already running to end well, and for the operator to log in."""


def free_bytes(path: str | os.PathLike[str]) -> int:
    """What an unprivileged writer can still write below `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def refuse_if_full(path: str | os.PathLike[str], size: int = 0, reserve: int = RESERVE) -> None:
    """Raise ObjectStoreFull unless `size` bytes fit and `reserve` bytes stay free after them."""
    free = free_bytes(path)
    if free - size < reserve:
        raise ObjectStoreFull(
            f"the disk under {os.fspath(path)} is full: {free >> 20} MiB are free, {size >> 20} MiB are"
            f" needed and {reserve >> 20} MiB must stay free"
        )
