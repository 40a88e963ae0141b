"""The weights that a node holds, and the choice of a node for a worker that needs some: a node that holds
them, else a node with room for them.

Pure: compares what a worker needs with the facts that a node reports (`wire.messages.weights`). A node that
reports none of them, as an agent that fetches no weights does, may hold them all the same: it comes last, and
is not ruled out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from stoker.wire.messages.weights import AVAILABLE, HELD, MOST, ROOM, SIZES, LockedWeights
from stoker.wire.sizes import in_words

HOLDS, HAS_ROOM, MAKES_ROOM, UNKNOWN = range(4)
"""How a node stands to weights, the best first."""


@dataclass(frozen=True, slots=True, order=True)
class Standing:
    """The least is best: of two nodes alike the one that fetches less. `why` is the end of a sentence about
    the node; `bars` says, in the same way, why it can never hold them, and `occupied` why it cannot before
    others have ended; empty if it can."""

    rank: int = HOLDS
    missing_bytes: int = 0
    why: str = field(default="", compare=False)
    bars: str = field(default="", compare=False)
    occupied: str = field(default="", compare=False)


class HeldWeights(Struct, frozen=True):
    """An entry that a node holds. `digest` is that of its contents; `size_bytes` is None where its node does
    not report it."""

    name: str
    digest: str
    size_bytes: int | None


def held_weights(facts: Mapping[str, str]) -> tuple[HeldWeights, ...] | None:
    """Returns the entries that a node holds; None for a node that does not report them."""
    if (held := facts.get(HELD)) is None:
        return None
    keys = [key.rpartition("@") for key in held.split(", ") if key]
    sizes = [_bytes(size) for size in facts.get(SIZES, "").split(", ")]
    if len(sizes) != len(keys):
        sizes = [None] * len(keys)
    return tuple(HeldWeights(name, digest, size) for (name, _, digest), size in zip(keys, sizes, strict=True))


def standing(
    facts: Mapping[str, str],
    weights: Sequence[LockedWeights],
    coming: Collection[str] = (),
    left_bytes: int = 0,
) -> Standing:
    """Returns how a node stands to a worker's weights. `coming`: the keys of those that workers on the node
    have or wait for. `left_bytes`: the size of weights in use that are to count as unused."""
    if not weights:
        return Standing()
    held = frozenset(facts.get(HELD, "").split(", "))
    missing = [entry for entry in weights if entry.key not in held]
    if not missing:
        return Standing(HOLDS, 0, f"holds the weights {_names(weights)}")
    if all(entry.key in coming for entry in missing):
        return Standing(HAS_ROOM, 0, f"fetches the weights {_names(missing)} already")
    missing = [entry for entry in missing if entry.key not in coming]
    size = sum(entry.size for entry in missing)
    room, most = _bytes(facts.get(ROOM)), _bytes(facts.get(MOST))
    what = f"the weights {_names(missing)} ({in_words(size)})"
    if room is None or most is None:
        return Standing(UNKNOWN, size, f"does not report whether it holds {what}")
    if size <= min(room, most):  # what it holds may be an operator's, which no bound counts
        return Standing(HAS_ROOM, size, f"has room for {what}, and fetches them")
    needed = sum(entry.size for entry in weights)
    if needed > most:
        whole = f"the weights {_names(weights)} ({in_words(needed)})"
        return Standing(
            UNKNOWN, size, bars=f"can keep {in_words(most)} of weights, which is too little for {whole}"
        )
    available = _bytes(facts.get(AVAILABLE))
    if available is not None and size > available + left_bytes:
        used = f"can keep {in_words(most)} of weights, of which those in use leave {in_words(available)}"
        return Standing(MAKES_ROOM, size, occupied=f"{used}, which is too little now for {what}")
    return Standing(MAKES_ROOM, size, f"removes other weights, and fetches {what}")


def _names(weights: Sequence[LockedWeights]) -> str:
    return " and ".join(entry.name for entry in weights)


def _bytes(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
