"""The place of a job in its endpoint's queue: how many jobs would be claimed before it.

Counted up to a limit, in the queue's own index, so that a deep queue costs no more than a short one.
"""

from __future__ import annotations

from stoker.control.rules.queueing.order import IN_LINE, LAST, RETRY, Place
from stoker.control.store.database.opening import Conn

_PLACE = """
SELECT rank, not_before, seq FROM jobs WHERE id = :job AND endpoint = :endpoint AND state = 'IN_QUEUE'
"""


def _counted(where: str) -> str:
    return (
        "SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE endpoint = :endpoint AND state = 'IN_QUEUE'"
        f" AND {where} ORDER BY rank, not_before, seq LIMIT :limit) AS ahead"
    )


# Jobs that back off would not be claimed: they stand at the end of their lane.
_RETRIES = _counted(f"rank >= {RETRY} AND rank <= {RETRY} AND not_before <= :now")
_RETRIES_BEFORE = _counted(f"rank = {RETRY} AND (not_before, seq) < (:since, :seq)")
_IN_LINE = _counted(
    f"rank >= {IN_LINE} AND rank <= {LAST} AND (rank, not_before, seq) < (:lane, :since, :seq)"
)

_LAST_SEQ = (1 << 62) - 1


def ahead_of(conn: Conn, endpoint: str, job: str, now: float, limit: int) -> int | None:
    """Returns how many jobs stand before this one. None where there are more than `limit`, where it backs
    off, and where it does not wait."""
    row = conn.run(_PLACE, {"job": job, "endpoint": endpoint}).fetchone()
    if row is None or row[1] > now:
        return None
    return _ahead(conn, endpoint, Place(row[0], row[1]), row[2], now, limit)


def ahead_of_new(conn: Conn, endpoint: str, at: Place, now: float, limit: int) -> int | None:
    """Returns how many jobs stand before a place that no job has yet; None for more than `limit`."""
    return _ahead(conn, endpoint, at, _LAST_SEQ, now, limit)


def _ahead(conn: Conn, endpoint: str, at: Place, seq: int, now: float, limit: int) -> int | None:
    values = {"endpoint": endpoint, "lane": at.lane, "since": at.since, "seq": seq, "now": now}
    lanes = (_RETRIES_BEFORE,) if at.lane == RETRY else (_RETRIES, _IN_LINE)
    found = 0
    for lane in lanes:
        found += int(conn.run(lane, values | {"limit": limit + 1 - found}).fetchone()[0])
        if found > limit:
            return None
    return found
