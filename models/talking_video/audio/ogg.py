"""The places where one Ogg file ends and the next begins, in files put one behind the other. Pure.

Such a file is a chain, and its parts are the links (RFC 3533, section 4). Radio streams are chains, and what
recorders join. All tracks of a link begin, each with a page that says so, before the first other page.
"""

from __future__ import annotations

import mmap
from typing import Final

MOST: Final = 1000
"""Links. Each is opened alone, and a file of some megabytes could have a hundred thousand."""

HEADER: Final = 27
"""Bytes of a page's header, before the lengths of its segments."""

BEGINS: Final = 2
"""The flag of a track's first page."""


def links(data: bytes | mmap.mmap) -> list[tuple[int, int]]:
    """Returns the start and end of each link. Raises ValueError if there are too many."""
    starts, heads, position = [0], True, 0
    while (position := data.find(b"OggS", position)) >= 0:
        header = data[position : position + HEADER]
        if len(header) < HEADER:
            break
        begins = bool(header[5] & BEGINS)
        if begins and not heads:
            starts.append(position)
            if len(starts) > MOST:
                raise ValueError(f"it is a chain of more than {MOST} Ogg files")
        heads = begins
        lengths = data[position + HEADER : position + HEADER + header[26]]
        position += HEADER + len(lengths) + sum(lengths)
    return list(zip(starts, [*starts[1:], len(data)], strict=True))
