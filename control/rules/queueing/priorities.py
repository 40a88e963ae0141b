"""The classes of jobs, and the head start of each in the queue. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Priority(StrEnum):
    """The class of a job."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


STEP_S = 3_600.0
"""By how much a class stands before the next."""

HEAD_START_S: Mapping[Priority, float] = MappingProxyType(
    {Priority.LOW: STEP_S, Priority.NORMAL: 2 * STEP_S, Priority.URGENT: 3 * STEP_S}
)

_BEST_FIRST = tuple(Priority)


def priority_of(*, low: bool, urgent: bool) -> Priority:
    """Returns the class that is stored as these two marks."""
    if low:
        return Priority.LOW
    return Priority.URGENT if urgent else Priority.NORMAL


def outranks(priority: Priority, other: Priority) -> bool:
    """Returns whether a job of this class stands before one of the other that came at the same time."""
    return _BEST_FIRST.index(priority) < _BEST_FIRST.index(other)
