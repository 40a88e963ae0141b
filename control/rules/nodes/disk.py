"""The disk of a node: how much is free, as its agent reports, and when nothing new may go there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FREE, TOTAL = "disk_free", "disk_total"
"""The facts, in bytes, of the disk with the agent's data folder."""
LEAST_BYTES: Final = 500_000_000
LEAST_SHARE: Final = 0.02
"""A node takes nothing new with less free than both: a worker needs room for its code, scratch and logs."""


DIGITS_MOST: Final = 18
"""More digits are not a disk's: nodes are not trusted, and a float has a largest number."""


def bytes_of(facts: Mapping[str, str], name: str) -> int | None:
    """Returns a fact as a number of bytes; None where the node does not tell one."""
    text = facts.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MOST else None


def full(facts: Mapping[str, str]) -> str:
    """Returns why nothing new may go to a node whose disk is full, as the end of a sentence about the node;
    empty if it has room, or does not tell."""
    free, total = bytes_of(facts, FREE), bytes_of(facts, TOTAL)
    if free is None or total is None:
        return ""
    least = min(LEAST_BYTES, int(total * LEAST_SHARE))
    if free >= least:
        return ""
    return f"has {free / 1e9:.2f} GB of disk free, and takes nothing new with less than {least / 1e9:.2f} GB"
