"""Draws ids, which are opaque to every reader.

Callers pass their own `Random`, so that a simulation draws the same ids again.
"""

from __future__ import annotations

import uuid
from random import Random

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def job_id(rng: Random, *, sync: bool) -> str:
    """Returns a new id: `<uuid4>-u1` for `/run`, `sync-<uuid4>-u1` for `/runsync`."""
    drawn = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"sync-{drawn}-u1" if sync else f"{drawn}-u1"


def short_id(rng: Random) -> str:
    """Returns fourteen lower-case letters and digits, for workers, nodes, boots and keys."""
    return "".join(rng.choice(_ALPHABET) for _ in range(14))
