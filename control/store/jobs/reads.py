"""Jobs in the store as their callers may see them: records and streams; `lists` has many of them.

A job whose time has passed is not shown, whether or not it was swept. Nothing is changed but the cursor of a
stream's pollers. Outputs are read only for a single record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from stoker.control.rules.job_states import JobState
from stoker.control.rules.retries import YIELDED, retries
from stoker.control.rules.streams import Cursor, StoredChunk
from stoker.control.rules.types import JobView
from stoker.control.store.database.opening import Conn
from stoker.wire.messages import Ref

NO_REF: Mapping[str, Any] = {"ref_key": None, "ref_size": None, "ref_sha256": None}
"""The columns of a payload that is in its row."""


def ref_columns(ref: Ref) -> Mapping[str, Any]:
    return {"ref_key": ref.key, "ref_size": ref.size, "ref_sha256": ref.sha256}


def ref_of(key: str | None, size: int | None, sha256: str | None) -> Ref | None:
    return None if key is None else Ref(key, size or 0, sha256 or "")


# ---- one job ------------------------------------------------------------------------------------


def view(conn: Conn, account: str, endpoint: str, job: str, now: float) -> JobView | None:
    """Returns the job as its caller may see it; None when there is none, or its time has passed."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run("view", values).fetchone()
    if row is None:
        return None
    return view_of_row(
        row,
        now,
        output=row[13],
        output_ref=ref_of(row[14], row[15], row[16]),
        error=row[17],
        progress=row[18] if row[2] == JobState.IN_PROGRESS else None,
        stream=row[19],
    )


def view_of_row(row: Any, now: float, **rest: Any) -> JobView:
    """Returns the view of a row that begins with the columns of `view` in statements.sql; `rest` has the
    other fields."""
    state = JobState(row[2])
    waits = state is JobState.IN_QUEUE
    return JobView(
        id=row[0],
        endpoint=row[1],
        state=state,
        created_at=row[3],
        sync=bool(row[4]),
        attempt=row[5],
        retries=retries(row[5], row[6]),
        worker=row[7],
        delay_ms=None if row[8] is None else max(row[8], 0),
        execution_ms=row[9],
        webhook=row[10],
        not_before=row[11] if waits and row[11] > row[3] else 0.0,
        reason=_backing_off(row[5], row[11], now, row[12]) if waits else row[12],
        **rest,
    )


def _backing_off(attempt: int, not_before: float, now: float, why: str | None) -> str | None:
    """Returns why a queued job waits, if it is of its own accord, or that it yielded. The text names a time,
    which stays the same while the job waits: a reader that reports each new reason reports this one once."""
    if not_before <= now or not attempt:
        return why if attempt and why and why.startswith(YIELDED) else None
    until = datetime.fromtimestamp(math.ceil(not_before), UTC)
    text = f"backing off until {until:%H:%M:%S} UTC after attempt {attempt}"
    return text if why is None else f"{text}: {why}"


class StoredInput(NamedTuple):
    """The input of a job, as JSON text or as the object `ref`, and the id of the key that submitted it."""

    api_key: str
    body: bytes | None
    ref: Ref | None


_INPUT = """
SELECT jobs.api_key, inputs.body, inputs.ref_key, inputs.ref_size, inputs.ref_sha256
FROM jobs LEFT JOIN inputs ON inputs.seq = jobs.seq
WHERE jobs.id = :job AND jobs.account = :account AND jobs.endpoint = :endpoint AND jobs.expires_at > :now
"""


def job_input(conn: Conn, account: str, endpoint: str, job: str, now: float) -> StoredInput | None:
    """Returns the job's input; None when there is no such job."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run(_INPUT, values).fetchone()
    return None if row is None else StoredInput(row[0], row[1], ref_of(*row[2:]))


# ---- streams ------------------------------------------------------------------------------------


def chunks(conn: Conn, job: str, after: tuple[int, int], limit: int) -> tuple[StoredChunk, ...]:
    """Returns the current attempt's chunks after `(attempt, n)`, and those that it goes on from; other chunks
    of earlier attempts are void. Once the job has saved, those after the save are left out until it ends."""
    values = {"job": job, "attempt": after[0], "n": after[1], "limit": limit}
    return tuple(StoredChunk(row[0], row[1], row[2], ref_of(*row[3:])) for row in conn.run("chunks", values))


_CURSOR = "SELECT attempt, n, told FROM cursors WHERE seq = (SELECT seq FROM jobs WHERE id = :job)"

_ADVANCE = """
INSERT INTO cursors (seq, attempt, n, told)
SELECT seq, :attempt, :n, CASE WHEN ended_at IS NULL THEN 0 ELSE :told END FROM jobs WHERE id = :job
ON CONFLICT (seq) DO UPDATE SET attempt = excluded.attempt, n = excluded.n, told = excluded.told
WHERE excluded.attempt > cursors.attempt
   OR (excluded.attempt = cursors.attempt AND excluded.n > cursors.n)
   OR (excluded.attempt = cursors.attempt AND excluded.n = cursors.n AND excluded.told > cursors.told)
"""


def stream_cursor(conn: Conn, job: str) -> Cursor:
    """Returns up to where pollers of /stream have read."""
    row = conn.run(_CURSOR, {"job": job}).fetchone()
    return Cursor() if row is None else Cursor(row[0], row[1], bool(row[2]))


def advance(conn: Conn, job: str, cursor: Cursor) -> None:
    """Moves the pollers' cursor forward, never back. An end that a retry has undone was not delivered."""
    values = {"job": job, "attempt": cursor.attempt, "n": cursor.n, "told": int(cursor.end_reported)}
    conn.run(_ADVANCE, values)
