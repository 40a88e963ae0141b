"""The memory that a worker holds, as `recycle_policy` and others count with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a worker holds: its processes of the host's memory, and of its device's. None: unknown."""

    host: int | None = None
    device: int | None = None


UNKNOWN: Final = Footprint()
