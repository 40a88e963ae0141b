"""Lists of jobs, newest first, page by page, and searches in them.

A page reads SCANNED rows at most, along the index of its endpoint. What is searched for has no index of its
own: those would cost every submission and every end, for lists that a person looks at now and then. Jobs are
numbered as they are stored, which is nearly as they were created: a page that begins in the past finds its
place in twenty looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Listing, Page
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.reads import view_of_row

SCANNED = 10_000
"""Rows that one page reads at most, so that what is rare in a long list does not delay others."""

LATE_S = 3_600.0
"""A job is stored soon after it was created: below one that is older by this, no younger one is expected."""

STORED_S = 300.0
"""How soon a job is stored: a body of the largest size has 190 s to come."""

_FIRST = 1 << 62
_ALWAYS = -1e300

# Compared and ordered by both columns, as the list's index is: it leaves PostgreSQL no other index, whatever
# it believes about other endpoints. SQLite wants them apart.
_BELOW = "(endpoint, seq) < (:endpoint, :before) {sqlite AND endpoint = :endpoint AND seq < :before}"
_NEWEST_FIRST = "ORDER BY endpoint DESC, seq DESC"
_DEEPEST = f"""
SELECT seq, created_at FROM jobs WHERE {_BELOW} AND (endpoint, seq) > (:endpoint, 0)
{_NEWEST_FIRST} LIMIT 1 OFFSET :scanned
"""
_LIST = f"""
SELECT id, endpoint, state, created_at, sync, attempt, refused, worker, delay_ms, execution_ms, webhook,
       not_before,
       CASE WHEN state = 'IN_PROGRESS' AND uploading = 0 AND began_anew = 0 THEN NULL ELSE reason END, seq
FROM jobs
WHERE {_BELOW} AND (endpoint, seq) >= (:endpoint, :deepest)
  {{sqlite AND seq >= :deepest}} AND account = :account AND expires_at > :now
  AND (state = COALESCE(:state, state) OR state = :besides) AND created_at >= :since
  %s
{_NEWEST_FIRST} LIMIT :limit
"""
_ERROR = "SELECT error FROM results WHERE seq = :seq"

_SEARCHES: Mapping[str, str] = {
    "until": "AND created_at <= :until",
    "worker": "AND worker = :worker",
    "node": """
  AND (node = :node
    OR EXISTS (SELECT 1 FROM given_workers g WHERE g.worker = jobs.worker AND g.node = :node))""",
    "error": """
  AND state IN ('FAILED', 'TIMED_OUT', 'CANCELLED') AND (lower(reason) LIKE lower(:error) ESCAPE '!'
    OR EXISTS (
      SELECT 1 FROM results r WHERE r.seq = jobs.seq AND lower(r.error) LIKE lower(:error) ESCAPE '!'))""",
}
"""The conditions of what is searched for, by the names of a listing's fields."""


def list_jobs(
    conn: Conn, account: str, endpoint: str, wanted: Listing, now: float, *, besides: JobState | None = None
) -> Page:
    """Returns records without their outputs, newest first. The cursor goes on where a page ended before its
    end. `besides`: those in this state, too."""
    searched = {name: value for name in _SEARCHES if (value := getattr(wanted, name)) is not None}
    if wanted.error is not None:
        searched["error"] = f"%{_escaped(wanted.error)}%"
    values = {
        "account": account,
        "endpoint": endpoint,
        "before": _begins(conn, endpoint, wanted),
        "state": wanted.state,
        "besides": besides,
        "since": _ALWAYS if wanted.since is None else wanted.since,
        "limit": wanted.limit + 1,
        "scanned": SCANNED - 1,
        "now": now,
        **searched,
    }
    deepest, created_at = conn.run(_DEEPEST, values).fetchone() or (None, 0.0)
    rows = conn.run(_listing(tuple(searched)), values | {"deepest": deepest or 0}).fetchall()
    views = tuple(view_of_row(row, now, error=_error(conn, row)) for row in rows[: wanted.limit])
    if len(rows) > wanted.limit:
        return Page(views, rows[wanted.limit - 1][13])
    late = wanted.since is not None and created_at < wanted.since - LATE_S
    return Page(views, None if late else deepest)


def _listing(searches: tuple[str, ...]) -> str:
    return _LIST % " ".join(_SEARCHES[name] for name in searches)


def _escaped(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


_NEXT = f"SELECT seq, created_at FROM jobs WHERE {_BELOW} {_NEWEST_FIRST} LIMIT 1"


def _begins(conn: Conn, endpoint: str, wanted: Listing) -> int:
    """Returns the number below which the page begins."""
    before = _FIRST if wanted.before is None else wanted.before
    if wanted.until is None:
        return before

    def newest_below(number: int) -> tuple[int, float] | None:
        row = conn.run(_NEXT, {"endpoint": endpoint, "before": number}).fetchone()
        return None if row is None or row[0] < 1 else (int(row[0]), float(row[1]))

    return skipped(newest_below, before, wanted.until + STORED_S)


def skipped(newest_below: Callable[[int], tuple[int, float] | None], before: int, until: float) -> int:
    """Returns the number of the oldest job that is younger than `until`, by halves; `before` if the next job
    below that number is none. All that were stored after a younger one are above it. `newest_below`: returns
    the number and the time of the next job below a number."""

    def younger(number: int) -> int | None:
        found = newest_below(number)
        return found[0] if found is not None and found[1] > until else None

    low, high = 0, younger(before)
    if high is None:
        return before
    while high - low > 1:
        middle = (low + high) // 2
        if (found := younger(middle + 1)) is None:
            low = middle
        else:
            high = found
    return high


_NUMBER = """
SELECT seq FROM jobs WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now
"""


def number_of(conn: Conn, account: str, endpoint: str, job: str, now: float) -> int | None:
    """Returns the cursor of a page that ends with this job; None when there is no such job."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run(_NUMBER, values).fetchone()
    return None if row is None else int(row[0])


def _error(conn: Conn, row: Any) -> str | None:
    """Reads the error of a failed job. Not joined: the error lies behind the output, which may be long and is
    not wanted."""
    if row[2] in (JobState.IN_QUEUE, JobState.IN_PROGRESS, JobState.COMPLETED):
        return None
    found = conn.run(_ERROR, {"seq": row[13]}).fetchone()
    return None if found is None else found[0]
