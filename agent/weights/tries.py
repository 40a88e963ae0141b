"""The tries of weights: when the next follows a failure, and what is said of the weights meanwhile. Pure.

A failure that may pass (a broken connection, a full disk) is tried again after 1, 2, 4 … 60 s, and after 1 s
where something had arrived. One that somebody must act on (a wrong digest, 401, 404) after 1, 2 … 10 minutes.
"""

from __future__ import annotations

from msgspec import Struct

from stoker.wire.sizes import part_in_words

FIRST_S, LONGEST_S = 1.0, 60.0
DEFINITE_FIRST_S, DEFINITE_LONGEST_S = 60.0, 600.0
PROGRESS_S = 5.0
"""How often the progress is reported."""


class NextTry(Struct, frozen=True):
    """The next try of a fetch that failed. `failures`: in a row. `wait_s`: until it is tried again."""

    failures: int
    wait_s: float


def after_failure(failures: int, *, definite: bool, gained_bytes: int) -> NextTry:
    """Returns the next try after a failed one. `failures` in a row came before; `gained_bytes` arrived in
    this try."""
    failures = 1 if gained_bytes > 0 and not definite else failures + 1
    first, longest = (DEFINITE_FIRST_S, DEFINITE_LONGEST_S) if definite else (FIRST_S, LONGEST_S)
    return NextTry(failures, min(first * 2.0 ** min(failures - 1, 16), longest))


def doing(node: str, does: str, name: str, here_bytes: int, size_bytes: int) -> str:
    """Returns what is being done to weights, in words. `does`: fetches, or verifies."""
    return f"node {node} {does} the weights {name}: {part_in_words(here_bytes, size_bytes)}"


def failing(node: str, name: str, why: str, wait_s: float) -> str:
    return f"node {node} cannot get the weights {name}: {why}; it tries again after {wait_s:.0f} s"
