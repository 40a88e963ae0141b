"""The storing of a decision on declared endpoints, within one transaction."""

from __future__ import annotations

from stoker.control import store
from stoker.control.resources.declared.decision import Decision
from stoker.control.rules.types import Endpoint
from stoker.control.store import Conn


def store_decision(
    conn: Conn, decision: Decision, now: float, *, for_good: bool = False
) -> tuple[Endpoint, ...]:
    """Stores the endpoints and disables the deleted ones. Returns those that were stored, with their
    versions. `for_good`: the jobs of deleted ones do not wait until the file declares them again."""
    for gone in decision.deleted:
        store.remove_endpoint(conn, gone, now, for_good=for_good)
    return tuple(store.put_endpoint(conn, endpoint, now) for endpoint in decision.stored)
