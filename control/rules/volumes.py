"""Decides which nodes can mount a network volume, and when it is too full for more workers. Pure.

A node reports the facts `volumes` ("yes: …", or "no: why") and `data_center`. A fact that it does not report
excludes nothing: if nodes have no labels, a volume's data centre has no effect.

The size of a volume is not enforced. If a volume exceeds its size, its contents stay, and its workers go on;
but no further worker or pod gets it until it has grown or something was removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.rules.placement import NodeRoom

GB = 1_000_000_000


class Volume(Struct, frozen=True):
    """A network volume. `used_bytes` is what a node measured at `measured_at`; None before that. Times are in
    seconds since the epoch."""

    id: str
    account: str
    name: str
    data_center: str
    size_gb: int
    created_at: float
    used_bytes: int | None = None
    measured_at: float | None = None
    deleted_at: float | None = None

    @property
    def size_bytes(self) -> int:
        return self.size_gb * GB


def fitting(name: str, volume: Volume | None, rooms: Sequence[NodeRoom]) -> list[NodeRoom]:
    """Returns the rooms, closed if the named volume cannot be used there. A name without a record is that of
    a folder; without a name no room is closed."""
    if not name:
        return list(rooms)
    return [replace(room, closed=room.closed or unfit(name, volume, room.facts)) for room in rooms]


def unfit(name: str, volume: Volume | None, facts: Mapping[str, str]) -> str:
    """Returns why a node with these facts gets no more workers with the volume, as the end of a sentence
    about the node; "" if it may."""
    if facts.get("volumes", "").startswith("no"):
        return f"has no place for volume {name} (start its agent with --volume-root)"
    if volume is None:
        return ""
    there = facts.get("data_center", "")
    if there and volume.data_center and there != volume.data_center:
        return f"is in data center {there}, and volume {name} in {volume.data_center}"
    if volume.used_bytes is not None and volume.used_bytes > volume.size_bytes:
        used = f"{volume.used_bytes / GB:.1f} GB"
        return f"is closed to volume {name}, which holds {used} and has a size of {volume.size_gb} GB"
    return ""


def grown(volume: Volume, size_gb: int) -> Volume | str:
    """Returns the volume with this size, or why it cannot have it."""
    if size_gb < volume.size_gb:
        return f"size may only grow: volume {volume.id} has {volume.size_gb} GB; got {size_gb}"
    return replace(volume, size_gb=size_gb)
