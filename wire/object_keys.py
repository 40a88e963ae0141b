"""Builds the keys of objects in the object store: the files, chunks and saves of an attempt, large inputs and
outputs, and what callers upload."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


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
