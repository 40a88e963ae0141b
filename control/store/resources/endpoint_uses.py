"""The use of an endpoint, as the store has it: by its jobs, and by when its workers ran one."""

from __future__ import annotations

from stoker.control.rules.temporary import Use
from stoker.control.store.database.opening import Conn

_USE = """
SELECT
    changed_at,
    EXISTS (SELECT 1 FROM jobs WHERE endpoint = :endpoint AND state IN ('IN_QUEUE', 'IN_PROGRESS')),
    (SELECT max(created_at) FROM jobs WHERE endpoint = :endpoint),
    (SELECT max(ended_at) FROM jobs WHERE endpoint = :endpoint),
    (SELECT max(ended_ms) FROM usage WHERE kind = 'worker' AND resource = :endpoint AND state = 'running')
FROM endpoints WHERE id = :endpoint AND enabled = 1
"""


def use_of(conn: Conn, endpoint: str) -> Use | None:
    """Returns the use of an endpoint; None if there is no such endpoint (any more). A worker of a
    load-balancing endpoint counts as running while it is healthy, with or without requests; requests are not
    stored."""
    row = conn.run(_USE, {"endpoint": endpoint}).fetchone()
    if row is None:
        return None
    changed_at, in_use, queued_at, ended_at, ran_ms = row
    worked = [at for at in (ended_at, ran_ms and ran_ms / 1000) if at]
    return Use(changed_at, bool(in_use), queued_at, max(worked, default=None))
