"""The memory that a worker holds, as `recycle_policy` and others count with it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Footprint(Struct, frozen=True):
    """Bytes that a worker holds: its processes of the host's memory, and of its device's. None: unknown."""

    host: int | None = None
    device: int | None = None


UNKNOWN: Final = Footprint()
