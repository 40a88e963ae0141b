"""Counts: of living jobs by looking, of ended ones by counters that outlive them; and the bill of a job.

Looking is bounded: a count stops at its limit and says so, and the longest wait is the head of an index. So a
queue of a million jobs is sampled as fast as one of ten thousand.
"""

from __future__ import annotations

from sqlalchemy import select

from stoker.control.rules.queueing.order import LAST, RETRY
from stoker.control.rules.types import Counted, QueueSample
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.billing import counters

SAMPLED = 10_000
"""Waiting jobs of one endpoint that a sample counts, of high and of low priority each."""

BOTH = 1_000_000
"""One walk gives one column, which has two counts: of all jobs, times BOTH, and of the urgent ones."""

OLDEST = 100
"""Of the waiting jobs, so many of the oldest are looked at for the longest wait: some may back off."""


_WAITS_SINCE = "CASE WHEN not_before > created_at THEN not_before ELSE created_at END"


# Compared and ordered as the index of demand is: it leaves PostgreSQL no other index, whatever it believes
# about the other endpoints. SQLite wants the columns apart.
def _waiting(what: str, low: int, limit: str, endpoint: str) -> str:
    key = f"({endpoint}, {low})"
    return (
        f"SELECT {what} FROM jobs WHERE (endpoint, low) >= {key} AND (endpoint, low) <= {key} "
        f"{{sqlite AND endpoint = {endpoint} AND low = {low}}} AND state = 'IN_QUEUE' "
        f"ORDER BY endpoint, low, seq LIMIT {limit}"
    )


# As above, for the index of the queue: a rank is not compared by `=`.
def _in_line(what: str, first: int, last: int, limit: str, endpoint: str) -> str:
    return (
        f"SELECT {what} FROM jobs WHERE endpoint = {endpoint} AND state = 'IN_QUEUE' "
        f"AND rank >= {first} AND rank <= {last} ORDER BY rank, not_before, seq LIMIT {limit}"
    )


def _longest(low: int, endpoint: str) -> str:
    """Returns a column: since when the job waits that waits longest. The first to be tried again is looked at
    by itself, as the oldest jobs may all back off."""
    oldest = _waiting(f"{_WAITS_SINCE} AS since", low, str(OLDEST), endpoint)
    retry = _in_line(_WAITS_SINCE, RETRY, RETRY, "1", endpoint)
    return f"(SELECT MIN(since) FROM ({oldest}) AS oldest), ({retry})"


_SAMPLE = f"""
SELECT endpoints.id,
    (SELECT COUNT(*) * {BOTH} + COUNT(CASE WHEN urgent = 1 THEN 1 END)
     FROM ({_waiting("urgent", 0, ":limit", "endpoints.id")}) AS waiting),
    (SELECT COUNT(*) FROM ({_waiting("1", 1, ":limit", "endpoints.id")}) AS waiting),
    {_longest(0, "endpoints.id")}
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
    for endpoint, both, low, *heads in conn.run(_SAMPLE, {"limit": SAMPLED}):
        (queued, urgent), in_progress = divmod(both, BOTH), running.get(endpoint, 0)
        if queued or low or in_progress:
            since = min((head for head in heads if head is not None), default=None)
            samples[endpoint] = QueueSample(endpoint, queued, low, in_progress, since, urgent)
    return samples


_WAITED = f"SELECT {_longest(0, ':endpoint')}, {_longest(1, ':endpoint')}"


def waiting_since(conn: Conn, endpoint: str) -> float | None:
    """Returns since when the endpoint's job waits that waits longest; None where none waits."""
    heads = conn.run(_WAITED, {"endpoint": endpoint}).fetchone()
    return min((head for head in heads if head is not None), default=None)


_COUNT = f"""
SELECT (SELECT COUNT(*) FROM ({_in_line("1", RETRY, LAST, ":limit", ":endpoint")}) AS waiting),
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
