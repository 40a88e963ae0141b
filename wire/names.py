"""Ids and object keys: how they are drawn, and how they read.

Ids are opaque to every reader. Whoever draws one passes its own `Random`, so that a simulation draws the
same ids again.
"""

from __future__ import annotations

import re
import uuid
from random import Random

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def job_id(rng: Random, *, sync: bool) -> str:
    """`<uuid4>-u1` for `/run`, `sync-<uuid4>-u1` for `/runsync`."""
    drawn = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"sync-{drawn}-u1" if sync else f"{drawn}-u1"


def short_id(rng: Random) -> str:
    """Fourteen letters and digits, for workers, nodes, boots and keys."""
    return "".join(rng.choice(_ALPHABET) for _ in range(14))


def attempt_prefix(endpoint: str, job: str, attempt: int) -> str:
    """Everything that one attempt uploads lies below this prefix, and nothing else does."""
    return f"{endpoint}/{job}/{attempt}/"


def given_key(endpoint: str, drawn: str, name: str) -> str:
    """A file that a caller gave. No job is called `given`."""
    return artifact_key(f"{endpoint}/given/{drawn}/", 0, name)


def artifact_key(prefix: str, n: int, name: str) -> str:
    """The n-th file of an attempt. `name` is the handler's; letters that a URL would quote become `-`."""
    safe = _UNSAFE.sub("-", name.rsplit("/", 1)[-1]).strip(".-")[-100:] or "file"
    return f"{prefix}{n}-{safe}"


def chunk_key(prefix: str, n: int) -> str:
    """Where the n-th piece of an attempt's stream is kept when it is over 1 MB. No file has this name."""
    return f"{prefix}chunk-{n}.json"


def input_key(endpoint: str, job: str) -> str:
    """Where an input over 1 MB is kept."""
    return f"{endpoint}/{job}/input.json"


def output_key(prefix: str) -> str:
    """Where an output over 1 MB is kept."""
    return f"{prefix}output.json"
