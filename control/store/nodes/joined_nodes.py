"""The facts about every node that ever joined, and whether an operator has drained it.

Sessions, leases and what becomes of a node's jobs are `store.nodes.leases`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice

from msgspec import Struct, field
from sqlalchemy import delete, exists, or_, select, tuple_, update
from sqlalchemy.engine import Row

from stoker.control.rules.job_states import JobState
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.accounts import keys
from stoker.control.store.tables.jobs import jobs
from stoker.control.store.tables.nodes import nodes
from stoker.control.store.tables.resources import pods
from stoker.wire.messages import Device


class NodeRecord(Struct, frozen=True):
    """A node as its last Hello reported it. `seen_at`: when the node last sent anything, seconds since the
    epoch."""

    id: str
    name: str
    seen_at: float
    drained: bool
    credential: str = ""
    revoked_at: float | None = None
    devices: tuple[Device, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


_NODES = select(nodes, keys.c.revoked_at).select_from(nodes.outerjoin(keys, keys.c.id == nodes.c.credential))


def list_nodes(
    conn: Conn,
    account: str,
    *,
    wanted: Callable[[NodeRecord], bool] = lambda _: True,
    search: str = "",
    after: NodeRecord | None = None,
    limit: int | None = None,
) -> tuple[NodeRecord, ...]:
    """Returns the account's nodes by name, then by id: those that are `wanted`, whose name or id contains
    `search`, and that come after a node."""
    asked = _NODES.where(nodes.c.account == account).order_by(nodes.c.name, nodes.c.id)
    if search:
        places = (column.icontains(search, autoescape=True) for column in (nodes.c.name, nodes.c.id))
        asked = asked.where(or_(*places))
    if after is not None:
        asked = asked.where(tuple_(nodes.c.name, nodes.c.id) > tuple_(after.name, after.id))
    return tuple(islice(filter(wanted, map(_record, conn.execute(asked))), limit))


def get_node(conn: Conn, account: str, node: str) -> NodeRecord | None:
    row = conn.execute(_NODES.where(nodes.c.account == account, nodes.c.id == node)).first()
    return None if row is None else _record(row)


def drained_nodes(conn: Conn) -> frozenset[str]:
    return frozenset(conn.execute(select(nodes.c.id).where(nodes.c.drained == 1)).scalars())


def set_drained(conn: Conn, node: str, *, drained: bool) -> None:
    conn.execute(update(nodes).where(nodes.c.id == node).values(drained=int(drained)))


def holds_work(conn: Conn, node: str) -> bool:
    """Returns whether a job runs on the node, or a pod is there that was not deleted."""
    job = exists().where(jobs.c.node == node, jobs.c.state == JobState.IN_PROGRESS.value)
    pod = exists().where(pods.c.node == node, pods.c.wish != "TERMINATED")
    return bool(conn.execute(select(job | pod)).scalar())


def remove_node(conn: Conn, node: str) -> None:
    """Removes a node. Its report that deleted pods were removed there is no longer waited for."""
    conn.execute(update(pods).where(pods.c.node == node).values(forgotten=1))
    conn.execute(delete(nodes).where(nodes.c.id == node))


def _record(row: Row[tuple[object, ...]]) -> NodeRecord:
    return NodeRecord(
        id=row.id,
        name=row.name,
        seen_at=row.seen_at,
        drained=bool(row.drained),
        credential=row.credential,
        revoked_at=row.revoked_at,
        devices=tuple(Device(**device) for device in json.loads(row.devices)),
        facts=json.loads(row.facts),
    )
