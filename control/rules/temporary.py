"""The end of temporary endpoints, which are deleted 24 hours after their last use; replays an hour. Pure.

Half an hour after it, their minimum of workers is 0: whoever wanted it may have gone without a word.

    created, changed ──┐
    a job was queued, ran or ended ──┼──> the last use ── 24 h ──> deleted
    a request came or ended ─────────┘

An endpoint with an open job or request is in use, however long that takes. Workers without jobs are not
a use: an endpoint that keeps a worker warm is deleted, too.
"""

from __future__ import annotations

from msgspec import Struct

from stoker.control.rules.limits import REPLAY_LIFE_S, TEMPORARY_LIFE_S, TEMPORARY_WARM_S
from stoker.control.rules.types import Endpoint


class Use(Struct, frozen=True):
    """The use of an endpoint, as far as it is known; times are seconds since the epoch. `worked_at`: when a
    worker was last at a job. `requested_at`: when a request to a load-balancing endpoint last came or ended;
    None for a queue endpoint."""

    changed_at: float
    open: bool = False
    queued_at: float | None = None
    worked_at: float | None = None
    requested_at: float | None = None


def life_s(endpoint: Endpoint) -> float:
    """Returns for how many seconds the endpoint is kept after its last use."""
    return TEMPORARY_LIFE_S if endpoint.replay is None else REPLAY_LIFE_S


def last_use(use: Use, now: float) -> float:
    if use.open:
        return now
    known = (use.changed_at, use.queued_at, use.worked_at, use.requested_at)
    return max(at for at in known if at is not None)


def is_unused(use: Use, now: float, life_s: float) -> bool:
    """Returns whether the endpoint is deleted now. A clock that was set back deletes nothing."""
    return now - last_use(use, now) >= life_s


def may_cool(use: Use, now: float) -> bool:
    """Returns whether the endpoint keeps no idle worker any more."""
    return now - last_use(use, now) >= TEMPORARY_WARM_S
