"""Decides which weights are removed to make room for others. Pure.

Only what the agent fetched itself counts, and only that is removed: the least recently used first, never what
a worker uses or what is being fetched, and nothing in vain. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from stoker.wire.sizes import in_words


class Kept(Struct, frozen=True):
    """An entry that the agent fetched, or fetches. `size_bytes`: of the whole; `here_bytes`: on the disk.
    `busy`: a worker uses the entry, or it is being fetched."""

    size_bytes: int
    here_bytes: int
    used_at: float
    busy: bool


class Limits(Struct, frozen=True):
    """The limits of the room for weights. `most_bytes`: of all that is kept. `free_bytes`: what the disk has
    free, of which `reserve_bytes` stay free."""

    most_bytes: int
    free_bytes: int
    reserve_bytes: int


class RoomDecision(Struct, frozen=True):
    """The entries to remove; or `why_not`, the end of a sentence about the new entry. `definite`: it can
    never fit."""

    remove: tuple[str, ...] = ()
    why_not: str = ""
    definite: bool = False


def make_room(size_bytes: int, here_bytes: int, others: Mapping[str, Kept], limits: Limits) -> RoomDecision:
    """Decides how to make room for an entry of this size, of which so much is on the disk already. `others`:
    by name."""
    if size_bytes > limits.most_bytes:
        most = in_words(limits.most_bytes)
        return RoomDecision((), f"has {in_words(size_bytes)}, and this node keeps at most {most}", True)
    over = sum(_counted(kept) for kept in others.values()) + size_bytes - limits.most_bytes
    short = size_bytes - here_bytes - _free(others.values(), limits)
    remove = []
    for name, kept in sorted(others.items(), key=lambda item: (item[1].used_at, item[0])):
        if over <= 0 and short <= 0:
            break
        if not kept.busy:
            remove.append(name)
            over -= kept.here_bytes
            short -= kept.here_bytes
    if over > 0:
        used = in_words(sum(_counted(kept) for kept in others.values() if kept.busy))
        most = in_words(limits.most_bytes)
        return RoomDecision((), f"has {in_words(size_bytes)}; {used} of at most {most} are in use")
    if short > 0:
        return RoomDecision((), f"has {in_words(size_bytes)}, and the disk lacks {in_words(short)} for it")
    return RoomDecision(tuple(remove))


def room_bytes(kept: Collection[Kept], limits: Limits) -> int:
    """Returns how much can be fetched without removing anything."""
    left = limits.most_bytes - sum(_counted(one) for one in kept)
    return max(0, min(left, _free(kept, limits)))


def available_bytes(kept: Collection[Kept], limits: Limits) -> int:
    """Returns how much can be fetched if all that is not busy is removed."""
    idle = sum(one.here_bytes for one in kept if not one.busy)
    freed = replace(limits, free_bytes=limits.free_bytes + idle)
    return room_bytes([one for one in kept if one.busy], freed)


def most_bytes(kept: Collection[Kept], limits: Limits) -> int:
    """Returns how much could be kept at most, if all of this were removed."""
    on_disk = sum(one.here_bytes for one in kept) + limits.free_bytes - limits.reserve_bytes
    return max(0, min(limits.most_bytes, on_disk))


def _counted(kept: Kept) -> int:
    """Returns the bytes that count of an entry: while it is fetched, the whole; after a break, what is
    there."""
    return max(kept.size_bytes, kept.here_bytes) if kept.busy else kept.here_bytes


def _free(kept: Collection[Kept], limits: Limits) -> int:
    promised = sum(_counted(one) - one.here_bytes for one in kept)
    return limits.free_bytes - limits.reserve_bytes - promised
