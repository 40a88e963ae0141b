"""Nodes in the store: their sessions, their leases, and what becomes of the jobs of a lost one.

A session is raised by every Hello with a credential and by every loss, and a node that has only joined has
none; claims name it, so whoever was superseded claims nothing. Outcomes do not: they are guarded by node and
attempt, and a result that was produced is taken from any later connection of its node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import bindparam, exists, select, update

from stoker.control.rules.events import JobState
from stoker.control.rules.policy import Again, Counts, after_drop, after_loss
from stoker.control.rules.validation import AssignedAttempt
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.schema import jobs, nodes
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.jobs import NO_REF, RANK
from stoker.control.store.jobs.orphans import prefixes
from stoker.control.store.jobs.queries import shown
from stoker.control.store.jobs.webhooks import note_end
from stoker.control.types import Changed, Reconciled, UploadRight
from stoker.wire.messages import AttemptKey, Device, Hello
from stoker.wire.names import attempt_prefix

# ---- sessions -----------------------------------------------------------------------------------


def add_node(conn: Conn, hello: Hello, now: float) -> None:
    """A node joins: what its Hello tells of it. Nothing happens where it is known."""
    conn.run("add_node", _row(hello.node, hello.boot, hello.name, hello.devices, hello.facts, now))


def open_session(
    conn: Conn,
    *,
    node: str,
    boot: str,
    name: str,
    devices: Sequence[Device],
    facts: Mapping[str, str],
    now: float,
    lease_s: float,
) -> int | str:
    """The new session's number; or, while another boot of this node is alive, why it is refused."""
    found = conn.execute(select(nodes).where(nodes.c.id == node)).first()
    if found is not None and found.alive and found.boot != boot and now - found.seen_at <= lease_s:
        return (
            f"node {node} ({found.name}) is connected already, from another start of its agent that was seen "
            f"{max(now - found.seen_at, 0):.0f} s ago: was this host cloned? Remove the node id from its "
            f"data folder; or wait {lease_s:.0f} s if the other agent is gone"
        )
    session = 1 if found is None else int(found.session) + 1
    conn.run("open_session", _row(node, boot, name, devices, facts, now) | {"session": session})
    return session


def _row(
    node: str, boot: str, name: str, devices: Sequence[Device], facts: Mapping[str, str], now: float
) -> dict[str, Any]:
    return {
        "node": node,
        "name": name,
        "boot": boot,
        "now": now,
        "devices": json.dumps([asdict(device) for device in devices]),
        "facts": json.dumps(dict(facts)),
    }


def close_session(conn: Conn, node: str, session: int, now: float) -> None:
    """A clean end: another boot may take over at once. Its jobs are `requeue_node`'s business."""
    conn.execute(
        update(nodes).where(nodes.c.id == node, nodes.c.session == session).values(alive=0, seen_at=now)
    )


def touch_node(conn: Conn, node: str, session: int, now: float) -> bool:
    """Renews the lease. False: this session is over, and its stream must end."""
    return conn.run("renew", {"node": node, "session": session, "now": now}).rowcount > 0


def take_over(conn: Conn, since: float) -> tuple[str, ...]:
    """This process has just started, so no stream is open: closes every session.

    Returns the nodes that were alive and reported after `since`: they are expected back.
    """
    seen = select(nodes.c.id).where(nodes.c.alive == 1, nodes.c.seen_at >= since)
    expected = tuple(conn.execute(seen).scalars())
    conn.execute(update(nodes).where(nodes.c.alive == 1).values(alive=0))
    return expected


# ---- what a Hello holds -------------------------------------------------------------------------

_HELD = f"""
SELECT id, attempt, state FROM jobs WHERE node = :node AND {guard("drop")}
"""

_RESUME = f"""
UPDATE jobs SET state = 'IN_PROGRESS', suspect = 0
WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("resume")}
RETURNING endpoint
"""


def reconcile(conn: Conn, *, node: str, session: int, held: Collection[AttemptKey], now: float) -> Reconciled:
    """Current attempts that the node holds go on, also from the queue; the node's others go back to it."""
    if not _is_current(conn, node, session):
        return Reconciled(stop=tuple(held))
    rows = conn.run(_HELD, {"node": node}).fetchall()
    current = {AttemptKey(job, attempt): state for job, attempt, state in rows}
    changed: list[Changed] = []
    for key, state in current.items():
        if key not in held:
            changed += _put_back(conn, node, key, now)
        elif state == JobState.IN_QUEUE:
            changed += _resume(conn, node, key)
    keep = tuple(key for key in held if key in current)
    stop = tuple(key for key in held if key not in current)
    assigned = {key: attempt for key in held if (attempt := _assigned(conn, node, key)) is not None}
    return Reconciled(keep, stop, tuple(changed), assigned)


_WHOSE = "SELECT endpoint, attempt, node, worker, own_bucket FROM jobs WHERE id = :job"


def _assigned(conn: Conn, node: str, key: AttemptKey) -> AssignedAttempt | None:
    """What a node that names this attempt may say of it: nothing, where it is another node's or none's yet.
    Of a job whose record is gone nothing is known, and no key may be named."""
    row = conn.run(_WHOSE, {"job": key.job}).fetchone()
    if row is None:
        return AssignedAttempt("")
    endpoint, attempt, holder, worker, own_bucket = row
    prefix = attempt_prefix(endpoint, key.job, key.attempt)
    if key.attempt == attempt and holder == node:
        return AssignedAttempt(prefix, worker, bool(own_bucket))
    over = key.attempt < attempt or (key.attempt == attempt and holder is None)
    return AssignedAttempt(prefix, None, bool(own_bucket)) if over else None


def _is_current(conn: Conn, node: str, session: int) -> bool:
    found = select(nodes.c.id).where(nodes.c.id == node, nodes.c.session == session, nodes.c.alive == 1)
    return conn.execute(found).first() is not None


def _resume(conn: Conn, node: str, key: AttemptKey) -> list[Changed]:
    row = conn.run(_RESUME, {"job": key.job, "attempt": key.attempt, "node": node}).fetchone()
    return [] if row is None else [Changed(key.job, row[0], JobState.IN_PROGRESS)]


# ---- losing a node ------------------------------------------------------------------------------

_SILENT = select(nodes.c.id, nodes.c.session, nodes.c.seen_at).where(
    nodes.c.seen_at < bindparam("before"),
    (nodes.c.alive == 1)
    | exists().where(jobs.c.node == nodes.c.id, jobs.c.state == JobState.IN_PROGRESS.value),
)
"""Asked in every pass of the sweeper, so it is built once."""


def lost_nodes(conn: Conn, silent_before: float, now: float) -> tuple[dict[str, int], tuple[Changed, ...]]:
    """Nodes silent since `silent_before` lose their jobs, and their session is over: which they are,
    each with the session that was open, and what changed."""
    lost: dict[str, int] = {}
    changed: list[Changed] = []
    for node, session, seen_at in conn.execute(_SILENT, {"before": silent_before}).all():
        lost[node] = session
        changed += _lose(conn, node, now, f"no word from it for {now - seen_at:.0f} s")
    return lost, tuple(changed)


def requeue_node(conn: Conn, node: str, session: int, now: float, why: str) -> tuple[Changed, ...]:
    """The node's stream broke and did not come back. Nothing happens if a newer session is open."""
    newest = conn.execute(select(nodes.c.session).where(nodes.c.id == node)).scalar()
    return _lose(conn, node, now, why) if newest == session else ()


def _lose(conn: Conn, node: str, now: float, why: str) -> tuple[Changed, ...]:
    conn.execute(update(nodes).where(nodes.c.id == node).values(alive=0, session=nodes.c.session + 1))
    running = select(jobs.c.id, jobs.c.attempt).where(
        jobs.c.node == node, jobs.c.state == JobState.IN_PROGRESS.value
    )
    changed: list[Changed] = []
    for job, attempt in conn.execute(running).all():
        changed += _put_back(conn, node, AttemptKey(job, attempt), now, why)
    return tuple(changed)


# ---- back to the queue --------------------------------------------------------------------------

_FACTS = """
SELECT endpoint, low, attempt - refused - given_before,
       failures, handler_failures, max_attempts, handler_retries
FROM jobs WHERE id = :job AND attempt = :attempt AND node = :node
"""

_BACK = """
UPDATE jobs SET state = 'IN_QUEUE', not_before = :not_before, rank = :rank, uploading = 0, reason = :reason,
    failures = failures + suspect, suspect = :suspect, node = CASE WHEN :suspect = 1 THEN node ELSE NULL END
WHERE id = :job AND attempt = :attempt AND node = :node AND """

_DROP = _BACK + guard("drop")
_LOSE = _BACK + guard("lose")

_GIVE_UP = f"""
UPDATE jobs SET state = 'FAILED', ended_at = :now, node = NULL, suspect = 0, uploading = 0, reason = NULL,
    execution_ms = 0, expires_at = {{kept}}
WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("give_up")}
RETURNING id, endpoint, state, created_at, sync, attempt, refused, worker, delay_ms, execution_ms, webhook,
    not_before, reason, seq, account, first_attempt
"""

_SPILLED = "SELECT 1 FROM chunks WHERE seq = :seq AND attempt = :attempt AND ref_key IS NOT NULL LIMIT 1"


def drop_attempt(conn: Conn, node: str, key: AttemptKey, now: float) -> tuple[Changed, ...]:
    """The node will end this attempt no more: back to the queue, uncounted; FAILED if that came too often."""
    return tuple(_put_back(conn, node, key, now))


def _put_back(conn: Conn, node: str, key: AttemptKey, now: float, lost: str | None = None) -> list[Changed]:
    """`lost`: why the node is lost. Its attempt stays open then: the node may come back and end it."""
    values: dict[str, Any] = {"job": key.job, "attempt": key.attempt, "node": node}
    row = conn.run(_FACTS, values).fetchone()
    if row is None:
        return []
    endpoint, low, assigned, *counted = row
    again = _decide(node, lost, Counts(*counted), assigned, now)
    if again.not_before is None:
        return _give_up(conn, values | {"now": now}, again.why)
    values |= {"not_before": again.not_before, "rank": RANK[bool(low), True], "reason": again.why}
    back = _DROP if lost is None else _LOSE
    found = conn.run(back, values | {"suspect": int(lost is not None)})
    return [Changed(key.job, endpoint, JobState.IN_QUEUE)] if found.rowcount else []


def _decide(node: str, lost: str | None, counts: Counts, assigned: int, now: float) -> Again:
    if lost is None:
        return after_drop(node, assigned, now)
    return after_loss(node, lost, counts, assigned, now)


def _give_up(conn: Conn, values: dict[str, Any], why: str) -> list[Changed]:
    row = conn.run(_GIVE_UP, values).fetchone()
    if row is None:
        return []
    ended = shown(row, values["now"], error=why)
    seq, account, first = row[13:]
    conn.run("insert_result", {"seq": seq, "output": None, "error": why, **NO_REF})
    conn.run("count", {"account": account, "endpoint": ended.endpoint, "name": "failed", "by": 1})
    if ended.webhook is not None:
        note_end(conn, seq, ended, ended.webhook, values["now"])
    # Its last attempt's stream can still be read: pieces of it that were spilled go with the record.
    spilled = conn.run(_SPILLED, {"seq": seq, "attempt": ended.attempt}).fetchone() is not None
    losers = prefixes(ended.endpoint, ended.id, range(first, ended.attempt + (0 if spilled else 1)))
    return [Changed(ended.id, ended.endpoint, JobState.FAILED, view=ended, losers=losers)]


_HOLDS = """
SELECT j.endpoint, i.ref_key FROM jobs j LEFT JOIN inputs i ON i.seq = j.seq
WHERE j.id = :job AND j.attempt = :attempt AND j.node = :node
"""


def upload_right(conn: Conn, node: str, job: str, attempt: int) -> UploadRight | None:
    """None where this node may not end this attempt any more, and so what it uploads would be nobody's."""
    row = conn.run(_HOLDS, {"job": job, "attempt": attempt, "node": node}).fetchone()
    return None if row is None else UploadRight(*row)
