"""Puts jobs of a node back into the queue: of a lost node all, of a connected one what it no longer holds, of
any what it was not sent.

A lost node's attempt stays open, since the node may come back and end it. A job that was lost or dropped too
often fails. For a job that lay ahead of a worker the loss of its node is not a failure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import select, update

from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.order import IN_LINE, RETRY, place_again
from stoker.control.rules.queueing.priorities import HEAD_START_S, Priority
from stoker.control.rules.retries import Counts, after_drop, after_loss, after_no_sending
from stoker.control.rules.types import Changed
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.attempts import note_attempt
from stoker.control.store.jobs.orphan_objects import prefixes, without_read
from stoker.control.store.jobs.reads import NO_REF, view_of_row
from stoker.control.store.jobs.saves import drop_save, has_progressed
from stoker.control.store.jobs.webhook_outbox import note_end
from stoker.control.store.tables.jobs import jobs
from stoker.control.store.tables.nodes import nodes
from stoker.wire.messages import AttemptKey

# ---- losing a node ------------------------------------------------------------------------------

_SILENT = """
SELECT id, session, seen_at FROM nodes WHERE seen_at < :before
AND (alive = 1 OR EXISTS (SELECT 1 FROM jobs WHERE jobs.node = nodes.id AND jobs.state = 'IN_PROGRESS'))
"""


def lost_nodes(
    conn: Conn, silent_before: float, now: float, ahead: Collection[AttemptKey] = ()
) -> tuple[dict[str, int], tuple[Changed, ...]]:
    """Takes their jobs from nodes silent since `silent_before`, and ends their sessions. Returns these nodes,
    each with the session that was open, and what changed. `ahead`: the jobs that lay ahead of a worker."""
    lost: dict[str, int] = {}
    changed: list[Changed] = []
    for node, session, seen_at in conn.run(_SILENT, {"before": silent_before}).fetchall():
        if _end_session(conn, node, session):
            lost[node] = session
            changed += _lose(conn, node, now, f"no word from it for {now - seen_at:.0f} s", ahead)
    return lost, tuple(changed)


def requeue_node(
    conn: Conn, node: str, session: int, now: float, why: str, ahead: Collection[AttemptKey] = ()
) -> tuple[Changed, ...]:
    """Puts the jobs of a node back whose stream broke and did not come back. Nothing happens if a newer
    session is open. `ahead`: the jobs that lay ahead of a worker."""
    return _lose(conn, node, now, why, ahead) if _end_session(conn, node, session) else ()


def _end_session(conn: Conn, node: str, session: int) -> bool:
    """Ends the session, unless a newer one is open: then its jobs are that one's. Raises the number, so that
    no claim for this session is stored from now on."""
    ended = update(nodes).where(nodes.c.id == node, nodes.c.session == session)
    return conn.execute(ended.values(alive=0, session=session + 1)).rowcount > 0


def _lose(conn: Conn, node: str, now: float, why: str, ahead: Collection[AttemptKey]) -> tuple[Changed, ...]:
    running = select(jobs.c.id, jobs.c.attempt).where(
        jobs.c.node == node, jobs.c.state == JobState.IN_PROGRESS.value
    )
    changed: list[Changed] = []
    for job, attempt in conn.execute(running).all():
        key = AttemptKey(job, attempt)
        changed += put_back(conn, node, key, now, why, ahead=key in ahead)
    return tuple(changed)


# ---- back to the queue --------------------------------------------------------------------------

_FACTS = """
SELECT endpoint, low, created_at, attempt - refused - given_before,
       failures, handler_failures, max_attempts, handler_retries
FROM jobs WHERE id = :job AND attempt = :attempt AND node = :node
"""

_BACK = """
UPDATE jobs SET state = 'IN_QUEUE', not_before = :not_before, rank = :rank, uploading = 0, reason = :reason,
    failures = failures + suspect, suspect = :suspect, node = CASE WHEN :lost = 1 THEN node ELSE NULL END
WHERE id = :job AND attempt = :attempt AND node = :node AND """

_DROP = _BACK + guard("drop")
_LOSE = _BACK + guard("lose")

_GIVE_UP = f"""
UPDATE jobs SET state = 'FAILED', ended_at = :now, node = NULL, suspect = 0, uploading = 0, reason = NULL,
    execution_ms = 0, expires_at = {{kept}}, held_from = NULL
WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("give_up")}
RETURNING id, endpoint, state, created_at, sync, attempt, refused, worker, delay_ms, execution_ms, webhook,
    not_before, reason, seq, account, first_attempt, traceparent, stream_attempt
"""

_HAND_BACK = f"""
UPDATE jobs SET state = 'IN_QUEUE', uploading = 0, reason = :reason, suspect = 0,
    refused = refused + 1, node = NULL,
    rank = CASE WHEN low = 1 THEN {IN_LINE} ELSE {RETRY} END,
    not_before = CASE WHEN low = 1 THEN created_at - {HEAD_START_S[Priority.LOW]} ELSE :not_before END
WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("refuse")}
RETURNING endpoint
"""


def hand_back(conn: Conn, node: str, key: AttemptKey, now: float) -> tuple[Changed, ...]:
    """Puts a job back into the queue, uncounted, whose node was never sent this attempt."""
    again = after_no_sending(node, now)
    values = {"job": key.job, "attempt": key.attempt, "node": node}
    values |= {"not_before": again.not_before, "reason": again.why}
    row = conn.run(_HAND_BACK, values).fetchone()
    if row is not None:
        note_attempt(conn, key, node, "not_sent", again.why, now)
    return () if row is None else (Changed(key.job, row[0], JobState.IN_QUEUE, cause="not_sent"),)


def drop_attempt(conn: Conn, node: str, key: AttemptKey, now: float) -> tuple[Changed, ...]:
    """Puts a job back into the queue, uncounted, whose node will not end this attempt any more; FAILED if
    that came too often."""
    return tuple(put_back(conn, node, key, now))


def put_back(
    conn: Conn, node: str, key: AttemptKey, now: float, lost: str | None = None, *, ahead: bool = False
) -> list[Changed]:
    """Puts the job of this attempt back into the queue, or fails it if that came too often. `lost`: why the
    node is lost. Its attempt stays open then: the node may come back and end it. `ahead`: it lay ahead of a
    worker."""
    values: dict[str, Any] = {"job": key.job, "attempt": key.attempt, "node": node}
    row = conn.run(_FACTS, values).fetchone()
    if row is None:
        return []
    endpoint, low, created_at, assigned, *counted = row
    uncounted = ahead or (lost is not None and has_progressed(conn, key.job))
    if lost is None:
        again = after_drop(node, assigned, now)
    else:
        again = after_loss(node, lost, Counts(*counted), assigned, now, uncounted=uncounted)
    cause = "dropped" if lost is None else "node_lost"
    if again.not_before is None:
        return _give_up(conn, key, values | {"now": now}, cause, again.why)
    at = place_again(low=low == 1, created_at=created_at, not_before=again.not_before, now=now)
    values |= {"not_before": at.since, "rank": at.lane, "reason": again.why}
    values |= {"lost": int(lost is not None), "suspect": int(lost is not None and not uncounted)}
    found = conn.run(_DROP if lost is None else _LOSE, values)
    if not found.rowcount:
        return []
    note_attempt(conn, key, node, cause, again.why, now)
    return [Changed(key.job, endpoint, JobState.IN_QUEUE, cause=cause)]


def _give_up(conn: Conn, key: AttemptKey, values: dict[str, Any], cause: str, why: str) -> list[Changed]:
    row = conn.run(_GIVE_UP, values).fetchone()
    if row is None:
        return []
    note_attempt(conn, key, values["node"], cause, why, values["now"])
    ended = view_of_row(row, values["now"], error=why, traceparent=row[16])
    seq, account, first = row[13:16]
    conn.write("insert_result", {"seq": seq, "output": None, "error": why, **NO_REF})
    conn.write("count", {"account": account, "endpoint": ended.endpoint, "name": "failed", "by": 1})
    if ended.webhook is not None:
        note_end(conn, seq, ended, ended.webhook, values["now"])
    # Its last attempt's stream can still be read: chunks of it that were spilled go with the record.
    stream = row[17]
    if stream is not None:
        drop_save(conn, seq)
    losers = prefixes(ended.endpoint, ended.id, range(first, ended.attempt + 1))
    losers = without_read(conn, seq, stream or ended.attempt, losers)
    return [Changed(ended.id, ended.endpoint, JobState.FAILED, view=ended, losers=losers)]
