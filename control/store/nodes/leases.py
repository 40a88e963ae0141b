"""Nodes in the store: their sessions, their leases, and which attempts each holds. `requeue` puts the jobs of
a lost node back into the queue.

A session is raised by every Hello with a credential and by every loss, and a node that has only joined has
none; claims name it, so a superseded session claims nothing. Outcomes do not: they are guarded by node and
attempt, and a result that was produced is taken from any later connection of its node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from sqlalchemy import select, update

from stoker.control.rules.job_states import JobState
from stoker.control.rules.nodes.validation import AssignedAttempt
from stoker.control.rules.types import Changed, Reconciled, UploadRight
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.attempts import resume_attempt
from stoker.control.store.nodes.requeue import put_back
from stoker.control.store.tables.nodes import nodes
from stoker.wire.messages import AttemptKey, Device, Hello
from stoker.wire.object_keys import attempt_prefix

# ---- sessions -----------------------------------------------------------------------------------


def add_node(conn: Conn, hello: Hello, now: float) -> None:
    """Stores a node that joins, as its Hello describes it. A known one is not changed."""
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
    """Opens a session and returns its number; or, while another boot of this node is alive, why it is
    refused."""
    row = _row(node, boot, name, devices, facts, now) | {"lease_s": lease_s}
    # One statement: of two writers, each would read the same number and then give it to its own stream.
    opened = conn.run("open_session", row).fetchone()
    if opened is not None:
        return int(opened[0])
    name, seen_at = conn.execute(select(nodes.c.name, nodes.c.seen_at).where(nodes.c.id == node)).one()
    return (
        f"node {node} ({name}) is connected already, from another start of its agent that was seen "
        f"{max(now - seen_at, 0):.0f} s ago: was this host cloned? Remove the node id from its "
        f"data folder; or wait {lease_s:.0f} s if the other agent is gone"
    )


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
    """Ends a session cleanly: another boot may take over at once. `requeue_node` puts back its jobs."""
    conn.execute(
        update(nodes).where(nodes.c.id == node, nodes.c.session == session).values(alive=0, seen_at=now)
    )


def touch_node(conn: Conn, node: str, session: int, now: float) -> bool:
    """Renews the lease. False: this session is over, and its stream must end."""
    return conn.run("renew", {"node": node, "session": session, "now": now}).rowcount > 0


def take_over(conn: Conn, since: float) -> tuple[str, ...]:
    """Closes every session: this process has just started, so no stream is open.

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


def reconcile(
    conn: Conn, *, node: str, session: int, reported: Collection[AttemptKey], now: float
) -> Reconciled:
    """Compares a Hello with the store: current attempts that the node holds go on, also from the queue; the
    node's others go back to the queue."""
    if not _is_current(conn, node, session):
        return Reconciled(stop=tuple(reported))
    rows = conn.run(_HELD, {"node": node}).fetchall()
    current = {AttemptKey(job, attempt): state for job, attempt, state in rows}
    changed: list[Changed] = []
    for key, state in current.items():
        if key not in reported:
            changed += put_back(conn, node, key, now)
        elif state == JobState.IN_QUEUE:
            changed += _resume(conn, node, key)
    keep = tuple(key for key in reported if key in current)
    stop = tuple(key for key in reported if key not in current)
    assigned = {key: attempt for key in reported if (attempt := _assigned(conn, node, key)) is not None}
    return Reconciled(keep, stop, tuple(changed), assigned)


_WHOSE = "SELECT endpoint, attempt, node, worker, own_bucket FROM jobs WHERE id = :job"


def _assigned(conn: Conn, node: str, key: AttemptKey) -> AssignedAttempt | None:
    """Returns what a node that names this attempt may say of it: nothing, where the attempt is another node's
    or none's yet. Of a job whose record was deleted nothing is known, and no key may be named."""
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
    if row is None:
        return []
    resume_attempt(conn, key)
    return [Changed(key.job, row[0], JobState.IN_PROGRESS)]


# ---- uploads --------------------------------------------------------------------------------------

_HOLDS = """
SELECT j.endpoint, i.ref_key, s.ref_key
FROM jobs j LEFT JOIN inputs i ON i.seq = j.seq LEFT JOIN saves s ON s.seq = j.seq
WHERE j.id = :job AND j.attempt = :attempt AND j.node = :node
"""


def upload_right(conn: Conn, node: str, job: str, attempt: int) -> UploadRight | None:
    """Returns what the node may use of the object store for the attempt; None where this node may not end the
    attempt any more: what it uploads would belong to no job."""
    row = conn.run(_HOLDS, {"job": job, "attempt": attempt, "node": node}).fetchone()
    return None if row is None else UploadRight(*row)
