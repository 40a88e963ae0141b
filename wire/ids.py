"""Draws ids of workers, nodes, boots and keys, which are opaque to every reader.

Callers pass their own `Random`, so that a simulation draws the same ids again.
"""

from __future__ import annotations

from random import Random

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def short_id(rng: Random) -> str:
    """Returns fourteen lower-case letters and digits, for workers, nodes, boots and keys."""
    return "".join(rng.choice(_ALPHABET) for _ in range(14))
