"""The classes of jobs. Pure."""

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


def outranks(priority: Priority, other: Priority) -> bool:
    """Returns whether a job of this class stands before one of the other that came at the same time."""
    return _BEST_FIRST.index(priority) < _BEST_FIRST.index(other)
