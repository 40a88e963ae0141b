"""Draws ids and builds object keys.

Ids are opaque to every reader. Callers pass their own `Random`, so that a simulation draws the same ids
again.
"""

from __future__ import annotations

import re
import uuid
from random import Random

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def job_id(rng: Random, *, sync: bool) -> str:
    """Returns a new id: `<uuid4>-u1` for `/run`, `sync-<uuid4>-u1` for `/runsync`."""
    drawn = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"sync-{drawn}-u1" if sync else f"{drawn}-u1"


def short_id(rng: Random) -> str:
    """Returns fourteen lower-case letters and digits, for workers, nodes, boots and keys."""
    return "".join(rng.choice(_ALPHABET) for _ in range(14))


def attempt_prefix(endpoint: str, job: str, attempt: int) -> str:
    """Returns the prefix of all objects of one attempt, and of no others."""
    return f"{endpoint}/{job}/{attempt}/"


def uploaded_key(endpoint: str, drawn: str, name: str) -> str:
    """Returns the key of a file that a caller uploaded. No job has the id `given`."""
    return artifact_key(f"{endpoint}/given/{drawn}/", 0, name)


def artifact_key(prefix: str, n: int, name: str) -> str:
    """Returns the key of an attempt's n-th file. Characters of `name` that a URL would quote become `-`."""
    safe = _UNSAFE.sub("-", name.rsplit("/", 1)[-1]).strip(".-")[-100:] or "file"
    return f"{prefix}{n}-{safe}"


def chunk_key(prefix: str, n: int) -> str:
    """Returns the key of an attempt's n-th chunk if it is over 1 MB. No file has this name."""
    return f"{prefix}chunk-{n}.json"


def save_key(prefix: str, n: int) -> str:
    """Returns the key of an attempt's n-th save if it is over 48 KiB. No file has this name."""
    return f"{prefix}save-{n}"


def input_key(endpoint: str, job: str) -> str:
    """Returns the key of an input over 1 MB."""
    return f"{endpoint}/{job}/input.json"


def output_key(prefix: str) -> str:
    """Returns the key of an output over 1 MB."""
    return f"{prefix}output.json"
