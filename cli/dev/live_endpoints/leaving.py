"""The sentences about what stays on the platform when the server ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOT_THERE = ("EXITED", "THROTTLED")
"""The states of workers that are on no node."""


@dataclass(frozen=True, slots=True)
class Staying:
    """A live endpoint that stays. `hourly` is what its workers cost in US dollars, as long as they are there;
    an idle worker ends after `idle_s`."""

    name: str
    workers: int = 0
    hourly: float = 0.0
    idle_s: int = 0

    @classmethod
    def of(cls, endpoint: Mapping[str, Any]) -> Staying:
        """Reads the record of the management API."""
        there = [one for one in endpoint.get("workers", ()) if one["status"] not in NOT_THERE]
        hourly = sum(one.get("costPerHr") or 0.0 for one in there)
        return cls(endpoint["name"], len(there), hourly, endpoint["idleTimeout"])

    def __str__(self) -> str:
        if not self.workers:
            return f"{self.name} stays, without workers"
        cost = f" for {self.hourly:.6f}".rstrip("0").rstrip(".") + " USD an hour" if self.hourly else ""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.name} stays, with {workers}{cost}; an idle one ends after {self.idle_s} s"


def farewell(staying: Iterable[Staying]) -> Iterator[str]:
    """Yields what to say about these endpoints at the end."""
    every = list(staying)
    yield from map(str, every)
    if every:
        yield (
            "without workers they cost nothing; each is deleted 24 hours after its last use, and all now by:"
            " stoker dev clean"
        )
