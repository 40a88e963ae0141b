"""Sizes as text, in the units in which hubs and disks state them. Pure."""

from __future__ import annotations

_UNITS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def in_words(size_bytes: int) -> str:
    """Returns a size for people: 23802932552 as 23.8 GB."""
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"


def part_in_words(done_bytes: int, size_bytes: int) -> str:
    """Returns, for example, "3.2 of 23.8 GB". The part is rounded down, so that it is the whole only where
    nothing is left."""
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            done = size_bytes / factor if done_bytes >= size_bytes else done_bytes * 10 // factor / 10
            return f"{done:.1f} of {size_bytes / factor:.1f} {unit}"
    return f"{done_bytes} of {size_bytes} bytes"
