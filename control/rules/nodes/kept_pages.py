"""The pages in which the chunks that a save covers go back to the attempt that goes on from it. Pure.

    asked for    5 6 7 8 9 …
    a page       5 6 7          values, until they are 4 MiB or the next chunk is an object
                       8        the object of a chunk over 1 MB, alone

So no answer is larger than a message of the session should be.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from stoker.wire.messages import KeptAsk

PAGE_BYTES = 4 << 20
PAGE_CHUNKS = 1_000


class KeptChunk(Struct, frozen=True):
    """A chunk by its number. `size`: bytes of its value; `is_object`: its value is in the object store."""

    n: int
    size: int
    is_object: bool


def refusal(ask: KeptAsk, upto: int | None) -> str | None:
    """Returns why nothing is given back; None where something is. `upto`: how many chunks the save of the
    attempt covers; None where this node does not hold it, or it has none."""
    if upto is None:
        return f"this node holds no attempt {ask.attempt} of job {ask.job[:80]} that goes on from a save"
    if not ask.first < ask.upto <= upto:
        return f"the save covers {upto} chunks; chunks {ask.first} to {ask.upto - 1} are not among them"
    return None


def page(first: int, found: Sequence[KeptChunk]) -> int:
    """Returns how many chunks from `first` on make up a page; 0 where `first` is not found. `found` are in
    order."""
    size = count = 0
    for chunk in found[:PAGE_CHUNKS]:
        size += chunk.size
        if chunk.n != first + count or (count and (chunk.is_object or size > PAGE_BYTES)):
            break
        count += 1
        if chunk.is_object:
            break
    return count
