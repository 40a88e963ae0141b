"""Counts: of living jobs by looking, of ended ones by counters that outlive them; and the bill of a job.

Looking is bounded: a count stops at its limit and says so, and the longest wait is the head of an index. So a
queue of a million jobs is sampled as fast as one of ten thousand.
"""

from __future__ import annotations

from sqlalchemy import select

from stoker.control.rules.types import Counted, QueueSample
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.billing import counters

SAMPLED = 10_000
"""Waiting jobs of one endpoint that a sample counts, of high and of low priority each."""


# The order is the queue's, and a rank is never compared by `=`: it leaves both databases no other index than
# the queue's own, whatever they believe about the other endpoints.
def _waiting(what: str, first: int, last: int, limit: str, endpoint: str = "endpoints.id") -> str:
    return (
        f"SELECT {what} FROM jobs WHERE jobs.endpoint = {endpoint} AND jobs.state = 'IN_QUEUE' "
        f"AND jobs.rank >= {first} AND jobs.rank <= {last} "
        f"ORDER BY jobs.rank, jobs.not_before, jobs.seq LIMIT {limit}"
    )


_SINCE = "CASE WHEN jobs.not_before > jobs.created_at THEN jobs.not_before ELSE jobs.created_at END"
_HEADS = ", ".join(f"({_waiting(_SINCE, rank, rank, '1')})" for rank in range(2))
_SAMPLE = f"""
SELECT endpoints.id,
    (SELECT COUNT(*) FROM ({_waiting("1", 0, 1, ":limit")}) AS waiting),
    (SELECT COUNT(*) FROM ({_waiting("1", 2, 3, ":limit")}) AS waiting),
    {_HEADS}
FROM endpoints
"""
# What runs is found among what nodes hold, which is little. `COALESCE` changes nothing, but SQLite would read
# the index of all jobs without it.
_HELD = "FROM jobs WHERE node IS NOT NULL AND state = 'IN_PROGRESS'"
_RUNNING = f"SELECT COALESCE(endpoint, ''), COUNT(*) {_HELD} GROUP BY COALESCE(endpoint, '')"


def queue_sample(conn: Conn) -> dict[str, QueueSample]:
    """Returns a sample of each endpoint's queue; an endpoint without a living job is left out. For a sampler,
    not for every request."""
    running = dict(conn.run(_RUNNING, {}).fetchall())
    samples = {}
    for endpoint, queued, low, *heads in conn.run(_SAMPLE, {"limit": SAMPLED}):
        in_progress = running.get(endpoint, 0)
        if queued or low or in_progress:
            since = min((head for head in heads if head is not None), default=None)
            samples[endpoint] = QueueSample(endpoint, queued, low, in_progress, since)
    return samples


_OLDEST = ", ".join(f"({_waiting(_SINCE, rank, rank, '1', ':endpoint')})" for rank in range(4))


def waiting_since(conn: Conn, endpoint: str) -> float | None:
    """Returns since when the endpoint's job waits that waits longest; None where none waits."""
    heads = conn.run(f"SELECT {_OLDEST}", {"endpoint": endpoint}).fetchone()
    return min((head for head in heads if head is not None), default=None)


_COUNT = f"""
SELECT (SELECT COUNT(*) FROM ({_waiting("1", 0, 3, ":limit", ":endpoint")}) AS waiting),
       (SELECT COUNT(*) FROM (SELECT 1 {_HELD}
                                AND COALESCE(endpoint, '') = :endpoint LIMIT :limit) AS running)
"""


def count_jobs(conn: Conn, endpoint: str, limit: int) -> Counted:
    """Returns the number of the endpoint's living jobs, each kind counted up to `limit`."""
    queued, running = conn.run(_COUNT, {"endpoint": endpoint, "limit": limit + 1}).fetchone()
    return Counted(min(queued, limit), min(running, limit), exact=max(queued, running) <= limit)


def read_counters(conn: Conn, account: str, endpoint: str) -> dict[str, int]:
    """Returns the counters completed, failed, cancelled, retried: they outlive the jobs that they count.
    Absent means none."""
    found = select(counters.c.name, counters.c.value).where(
        counters.c.account == account, counters.c.endpoint == endpoint
    )
    return {row.name: row.value for row in conn.execute(found)}
