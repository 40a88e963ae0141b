"""Yields of jobs: the facts by which an attempt is asked to give up its slot, and what is noted then."""

from __future__ import annotations

from msgspec import Struct

from stoker.control.rules.queueing.order import IN_LINE, LAST, RETRY, Place, place_yielded
from stoker.control.rules.queueing.priorities import priority_of
from stoker.control.rules.queueing.yielding import Running, Waiting
from stoker.control.store.database.opening import Conn

_YIELDED = """
UPDATE jobs SET yields = yields + 1, yielded_at = :now WHERE seq = :seq RETURNING low, urgent, created_at
"""


def note_yield(conn: Conn, seq: int, now: float) -> Place:
    """Counts a yield of the job. Returns its new place in the queue."""
    low, urgent, created_at = conn.run(_YIELDED, {"seq": seq, "now": now}).fetchone()
    return place_yielded(priority_of(low=low == 1, urgent=urgent == 1), created_at, now)


def _next(first: int, last: int) -> str:
    return (
        "SELECT id, low, urgent, late_at FROM jobs WHERE endpoint = :endpoint AND state = 'IN_QUEUE'"
        f" AND rank >= {first} AND rank <= {last} AND not_before <= :now"
        " ORDER BY rank, not_before, seq LIMIT 1"
    )


_LANES = (_next(RETRY, RETRY), _next(IN_LINE, LAST))
_RUNNING = """
SELECT j.id, j.attempt, j.low, j.urgent, j.claimed_at, j.yields, j.yielded_at,
    CASE WHEN s.attempt = j.attempt THEN s.n + 1 ELSE 0 END
FROM jobs j LEFT JOIN saves s ON s.seq = j.seq
WHERE j.node IS NOT NULL AND j.state = 'IN_PROGRESS' AND COALESCE(j.endpoint, '') = :endpoint
"""


class Contest(Struct, frozen=True):
    """The next job in line of an endpoint, and the attempts that run."""

    waiting: Waiting
    running: tuple[Running, ...]


def contest(conn: Conn, endpoint: str, now: float) -> Contest | None:
    """Returns who waits next and what runs; None where no job could be claimed now."""
    values = {"endpoint": endpoint, "now": now}
    found = (conn.run(lane, values).fetchone() for lane in _LANES)
    row = next((row for row in found if row is not None), None)
    if row is None:
        return None
    late_in_s = None if row[3] is None else row[3] - now
    waiting = Waiting(row[0], priority_of(low=row[1] == 1, urgent=row[2] == 1), late_in_s)
    running = (_running(row, now) for row in conn.run(_RUNNING, {"endpoint": endpoint}).fetchall())
    return Contest(waiting, tuple(running))


def _running(row: tuple[str, int, int, int, float, int, float | None, int], now: float) -> Running:
    job, attempt, low, urgent, claimed_at, yields, yielded_at, saves = row
    return Running(
        job=job,
        attempt=attempt,
        priority=priority_of(low=low == 1, urgent=urgent == 1),
        ran_s=max(now - claimed_at, 0.0),
        saves=saves,
        yields=yields,
        yielded_ago_s=None if yielded_at is None else now - yielded_at,
    )
