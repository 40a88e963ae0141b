"""The classes of jobs, and which of them a key may submit. Pure."""

from __future__ import annotations

from enum import StrEnum


class Priority(StrEnum):
    """The class of a job."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


_BEST_FIRST = tuple(Priority)


def priority_of(*, low: bool, urgent: bool) -> Priority:
    """Returns the class that is stored as these two marks."""
    if low:
        return Priority.LOW
    return Priority.URGENT if urgent else Priority.NORMAL


def granted(asked: Priority | None, highest: Priority) -> Priority | None:
    """Returns the class of a job whose key may submit up to `highest`; None where it asked for more. What
    asks for none is normal, or what the key may."""
    if asked is None:
        return Priority.LOW if highest is Priority.LOW else Priority.NORMAL
    return None if outranks(asked, highest) else asked


def outranks(priority: Priority, other: Priority) -> bool:
    """Returns whether a job of this class stands before one of the other that came at the same time."""
    return _BEST_FIRST.index(priority) < _BEST_FIRST.index(other)
