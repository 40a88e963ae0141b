"""The decision which endpoints of the configuration file are stored and which are deleted, at a start of
control and when a running one reads the file again.

    declared ─┬─ not stored ──────────────────────> new
              ├─ stored otherwise ────────────────> changed: a new version only where workers run otherwise
              └─ as it is stored ─────────────────> nothing
    stored ───┬─ of the file, not declared ───────> deleted
              └─ made by callers ─────────────────> stays; relocked where the lock of its weights has changed

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.resources.declared import hosted
from stoker.control.resources.endpoint_fields import relocked
from stoker.control.rules.types import Endpoint


class Decision(Struct, frozen=True):
    """The endpoints to store, as they are declared, and the ids of those to delete. `relocked`: endpoints
    that callers made, with the weights of another lock."""

    new: tuple[Endpoint, ...] = ()
    changed: tuple[Endpoint, ...] = ()
    relocked: tuple[Endpoint, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def stored(self) -> tuple[Endpoint, ...]:
        return (*self.relocked, *self.new, *self.changed)

    def __str__(self) -> str:
        """Returns each endpoint with its change, for a line of the log; "" where there is no change."""
        named = [f"{one.id} (new)" for one in self.new] + [f"{one.id} (changed)" for one in self.changed]
        return ", ".join([*named, *(f"{one} (deleted)" for one in self.deleted)])


def decide(declared: Iterable[Endpoint], stored: Iterable[Endpoint], settings: PlaneSettings) -> Decision:
    """Returns the changes that make the stored endpoints those that the file declares. Hosted ones keep the
    changes of callers, but for the fields that the file sets."""
    before = {endpoint.id: endpoint for endpoint in stored}
    wanted = {one.id: _with_changes(one, before.get(one.id), settings) for one in declared}
    others = [one for one in before.values() if one.id not in wanted]
    made = [(one, replace(one, run=relocked(one.run, settings))) for one in others if one.origin == "api"]
    return Decision(
        new=tuple(one for one in wanted.values() if one.id not in before),
        changed=tuple(one for one in wanted.values() if one.id in before and _differ(one, before[one.id])),
        relocked=tuple(after for one, after in made if after.run != one.run),
        deleted=tuple(one.id for one in others if one.origin != "api"),
    )


def _with_changes(declared: Endpoint, before: Endpoint | None, settings: PlaneSettings) -> Endpoint:
    if before is None or not declared.hosted:
        return declared
    return hosted.as_before(declared, before, settings.set_by_file.get(declared.id, ()))


def _differ(declared: Endpoint, before: Endpoint) -> bool:
    """Returns whether they differ in more than what the store assigns."""
    return replace(declared, version=before.version, created_at=before.created_at) != before
