"""The answer of `/ready`, from what the checks found. Pure.

Anybody may ask, so the answer names no address, path or error: those are in control's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

CONSEQUENCES = {
    "database": "the database does not answer: no job is accepted, and none is given out",
    "writes": "the database takes no writes: no job is accepted, and none is given out",
    "migrations": "the tables of the database are another version's: start control again",
    "objectStore": "the object store does not take files: large inputs are refused, and results wait",
    "disk": "the disk of the data folder is nearly full: jobs will soon be refused",
    "certificate": "the TLS certificate has expired: new connections fail",
}
"""The checks by their name, each with what its failure means."""


class Outcome(Struct, frozen=True):
    """The outcome of a check. `why` is for the log, and empty where the check passed."""

    name: str
    why: str = ""

    @property
    def passed(self) -> bool:
        return not self.why


def answer(outcomes: Sequence[Outcome], warnings: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Returns the status code and the body."""
    failed = [one.name for one in outcomes if not one.passed]
    body: dict[str, Any] = {
        "status": "not ready" if failed else "ready",
        "checks": {one.name: "ok" if one.passed else CONSEQUENCES[one.name] for one in outcomes},
    }
    if warnings:
        body["warnings"] = list(warnings)
    return (503 if failed else 200), body


def changed(before: Sequence[Outcome], now: Sequence[Outcome]) -> list[str]:
    """Returns a line for the log for each outage that has begun or ended since the look before."""
    earlier = {one.name: one for one in before}
    lines = []
    for one in now:
        passed = one.name not in earlier or earlier[one.name].passed
        if passed and not one.passed:
            lines.append(f"not ready: {CONSEQUENCES[one.name]} ({one.why})")
        elif not passed and one.passed:
            lines.append(f"ready again: {one.name}")
    return lines
