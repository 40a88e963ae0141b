"""The workers that control gave to nodes, for as long as a report about them may come.

A node that reconnects may hold those that it was assigned and that are still wanted there; what it
says that any of them took of its devices' time is believed until usage is too old to be taken.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.store.database.opening import Conn
from stoker.wire.messages import Usage

REMEMBERED_S = 8 * 86_400.0
"""A day longer than usage is taken."""

_GIVE = """
INSERT INTO given_workers (worker, node, endpoint, version, slots, devices)
VALUES (:worker, :node, :endpoint, :version, :slots, :devices)
ON CONFLICT (worker) DO NOTHING
"""
_TAKE = "UPDATE given_workers SET taken_at = :now WHERE worker = :worker AND taken_at IS NULL"
_FORGET = "DELETE FROM given_workers WHERE taken_at < :before"
_OF_NODE = """
SELECT worker, endpoint, version, slots, devices FROM given_workers WHERE node = :node AND taken_at IS NULL
"""
_POD = "SELECT version, devices FROM pods WHERE node = :node AND id = :pod"
_ONE = """
SELECT worker, endpoint, version, slots, devices FROM given_workers WHERE node = :node AND worker = :worker
"""


def give_workers(conn: Conn, assigned: Mapping[str, tuple[str, AssignedWorker]]) -> None:
    """Stores, by worker, the node and what the worker is to run there."""
    rows = [
        {
            "worker": worker,
            "node": node,
            "endpoint": one.endpoint,
            "version": one.version,
            "slots": one.slots,
            "devices": json.dumps(one.devices),
        }
        for worker, (node, one) in assigned.items()
    ]
    if rows:
        conn.run_many(_GIVE, rows)


def take_workers(conn: Conn, workers: Collection[str], now: float) -> None:
    """Marks workers that are not wanted any more, and forgets those that were marked long ago."""
    if workers:
        conn.run_many(_TAKE, [{"worker": worker, "now": now} for worker in workers])
        conn.run(_FORGET, {"before": now - REMEMBERED_S})


def workers_of_node(conn: Conn, node: str) -> dict[str, AssignedWorker]:
    """Returns the workers that are wanted on the node."""
    return {row[0]: _assigned(row) for row in conn.run(_OF_NODE, {"node": node}).fetchall()}


def usage_owner(conn: Conn, node: str, span: Usage) -> AssignedWorker | None:
    """Returns what this node was given under the span's name, also a worker that is not wanted any more. Of a
    pod in another version its devices are not known any more."""
    if span.kind == "worker":
        row = conn.run(_ONE, {"node": node, "worker": span.owner}).fetchone()
        return None if row is None else _assigned(row)
    row = conn.run(_POD, {"node": node, "pod": span.owner}).fetchone()
    if row is None:
        return None
    version, devices = row
    known = version == span.version
    return AssignedWorker("", version, 0, tuple(json.loads(devices)) if known else span.devices)


def _assigned(row: Any) -> AssignedWorker:
    _, endpoint, version, slots, devices = row
    return AssignedWorker(endpoint, version, slots, tuple(json.loads(devices)))
