"""Chooses the worker of a request. Pure: candidates, an affinity and a draw in, a decision with its reason
out.

Of two ready workers drawn at random, the one with fewer outstanding requests gets the request ("power of two
choices"): nearly as even as the least of all, and requests that come together do not all find the same one.

An affinity names the worker of an earlier response:

    <id>                                soft: that worker if it is ready, any other otherwise
    strict <id>, strict-resume <id>     that worker or none: wait while it exists, refuse once it is gone

It does not wait, count requests or open connections: `control.http.gateway.gateway` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

_WORKER = re.compile(r"[!-~]{1,256}")
_STRICT = ("strict", "strict-resume")


class Candidate(Struct, frozen=True):
    """A worker of the endpoint. `ready`: it is in rotation, and its node can be reached."""

    worker: str
    ready: bool
    outstanding: int


class Affinity(Struct, frozen=True):
    worker: str
    strict: bool


class Chosen(Struct, frozen=True):
    worker: str
    why: str


class Wait(Struct, frozen=True):
    why: str


class Gone(Struct, frozen=True):
    """The only worker that would do does not exist any more."""

    worker: str


Choice: TypeAlias = Chosen | Wait | Gone


def parse_affinity(text: str) -> Affinity:
    """Reads the header of a request. Raises ValueError with what is allowed."""
    parts = text.split()
    strict = len(parts) == 2 and parts[0].lower() in _STRICT
    if not (strict or len(parts) == 1) or not _WORKER.fullmatch(parts[-1]) or parts[-1].lower() in _STRICT:
        raise ValueError("a worker's id is allowed, or strict and a worker's id")
    return Affinity(parts[-1], strict)


def choose(candidates: Sequence[Candidate], affinity: Affinity | None, draw: Callable[[int], int]) -> Choice:
    """Chooses a worker for a request. `draw(n)` returns a number from 0 to n - 1, each as likely as the
    others."""
    ready = [one for one in candidates if one.ready]
    if affinity is not None:
        if any(one.worker == affinity.worker for one in ready):
            return Chosen(affinity.worker, "the request names it")
        if affinity.strict and all(one.worker != affinity.worker for one in candidates):
            return Gone(affinity.worker)
        if affinity.strict:
            return Wait(f"worker {affinity.worker} is not ready")
    if not ready:
        return Wait("no worker is ready")
    if len(ready) == 1:
        return Chosen(ready[0].worker, "the only one that is ready")
    first = draw(len(ready))
    second = draw(len(ready) - 1)
    pair = ready[first], ready[second + (second >= first)]
    return Chosen(min(pair, key=lambda one: one.outstanding).worker, "fewer outstanding requests of two")
