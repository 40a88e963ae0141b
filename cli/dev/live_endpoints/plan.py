"""The live endpoints that are created, updated, replaced or used as they are. Pure.

    wanted ── not on the platform ──────────────────> Create
           ├─ there, with a part that cannot change ─> Replace: deleted, then created
           ├─ there, cached with the same hash ──────> Keep
           └─ there, with another hash or none, or
              without the minimum of workers ────────> Update

An endpoint's type, and whether it has a GPU, cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stoker.control.rules.limits import DEV_CONFIRMS_ABOVE

Verb: TypeAlias = Literal["create", "update", "replace", "keep"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The configuration of an endpoint: the hash of all of it, and the parts that cannot change. `compute` is
    GPU, CPU, or "" for either. `workers_min` is the minimum while a server runs."""

    hash: str
    type: str = "QUEUE"
    compute: str = ""
    workers_min: int = 0


@dataclass(frozen=True, slots=True)
class Cached:
    """A live endpoint as it was last provisioned from here."""

    id: str
    template: str
    hash: str


@dataclass(frozen=True, slots=True)
class Existing:
    """An endpoint that the platform has."""

    id: str
    template: str
    type: str
    compute: str
    workers_min: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """An action on one live endpoint. `existing` is the endpoint that is updated, replaced or kept."""

    verb: Verb
    reason: str
    existing: Existing | None = None


def decide(wanted: Wanted, cached: Cached | None, existing: Existing | None) -> Action:
    if existing is None:
        return Action("create", "it is new" if cached is None else f"{cached.id} is gone")
    if existing.type != wanted.type:
        return Action("replace", f"it is {wanted.type} now, and was {existing.type}", existing)
    if wanted.compute and existing.compute != wanted.compute:
        return Action("replace", f"it needs a {wanted.compute} now", existing)
    if cached is None or cached.id != existing.id:
        return Action("update", "the local file does not know it", existing)
    if cached.hash != wanted.hash:
        return Action("update", "its configuration changed", existing)
    if existing.workers_min != wanted.workers_min:
        changed = f"its minimum of workers was {existing.workers_min}, and is {wanted.workers_min} now"
        return Action("update", changed, existing)
    return Action("keep", "its configuration is the same", existing)


def question(actions: Mapping[str, Action]) -> str | None:
    """Returns what has to be confirmed before these actions are carried out, if anything."""
    creates = [name for name, one in actions.items() if one.verb == "create"]
    if len(creates) <= DEV_CONFIRMS_ABOVE:
        return None
    return f"{len(creates)} endpoints would be created: {', '.join(creates)}. Create them?"


def stale(cached: Mapping[str, Cached], existing: Mapping[str, Existing]) -> Sequence[str]:
    """Returns the names of cached endpoints that the platform does not have, or has under another id."""
    return [name for name, one in cached.items() if name not in existing or existing[name].id != one.id]
