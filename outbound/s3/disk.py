"""Refuses to write to a disk that has too little room left."""

from __future__ import annotations

import os
import shutil

from stoker.outbound.errors import ObjectStoreDown, ObjectStoreFull

RESERVE_BYTES = 256 << 20
"""Bytes that stay free, so that running work can end well and the operator can log in."""


def refuse_if_full(path: str | os.PathLike[str], size: int = 0, reserve_bytes: int = RESERVE_BYTES) -> None:
    """Raises ObjectStoreFull unless `size` bytes fit and `reserve_bytes` stay free after them, and
    ObjectStoreDown if there is no such folder."""
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        raise ObjectStoreDown(
            f"the object store's folder {os.fspath(path)} cannot be used: {error.strerror}"
        ) from None
    if free - size < reserve_bytes:
        raise ObjectStoreFull(
            f"the disk under {os.fspath(path)} is full: {free >> 20} MiB are free, {size >> 20} MiB are"
            f" needed and {reserve_bytes >> 20} MiB must stay free"
        )
