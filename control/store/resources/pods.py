"""Pods in the store: the request, the desired state, and what their nodes last reported.

A row stays after its pod was deleted, for the bill. The request is sealed: its env may hold secrets. What
an action or a report leads to is decided by `control.rules.pods`; here the outcome is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace
from sqlalchemy import insert, select, update

from stoker.control.rules.pods import ContainerReport, Pod, PodBody, WantedPod, after_hello, after_report
from stoker.control.store.database.opening import Conn
from stoker.control.store.resources.registries import registry_login
from stoker.control.store.tables.resources import pods
from stoker.wire.messages import HeldPod, PodState, PortMapping

API_KEY = "api_key"
"""Sealed with the request."""


def add_pod(conn: Conn, pod: Pod) -> None:
    conn.execute(insert(pods), {"id": pod.id, "billed_to": pod.created_at} | _row(conn, pod))


def put_pod(conn: Conn, pod: Pod) -> Pod:
    """Stores a pod. Returns it as it is stored then, with a revision of its own."""
    stored = replace(pod, revision=pod.revision + 1)
    conn.execute(update(pods).where(pods.c.id == pod.id).values(**_row(conn, stored)))
    return stored


def get_pod(conn: Conn, account: str, pod: str) -> Pod | None:
    """Returns a pod that was not deleted."""
    living = select(pods).where(pods.c.id == pod, pods.c.account == account, pods.c.wish != "TERMINATED")
    row = conn.execute(living).first()
    return None if row is None else _pod(conn, row)


def list_pods(conn: Conn, account: str) -> tuple[Pod, ...]:
    """Returns the account's pods, in the order of their making; of those that were deleted, the ones whose
    node still has something of them."""
    rows = conn.execute(_known().where(pods.c.account == account).order_by(pods.c.created_at, pods.c.id))
    return tuple(_pod(conn, row) for row in rows)


def _known() -> Any:
    return select(pods).where(pods.c.forgotten == 0)


def want(conn: Conn, pod: Pod) -> WantedPod:
    """Returns the pod with what else its node needs."""
    registry = pod.body.registry
    return WantedPod(pod, registry_login(conn, pod.account, registry) if registry else None)


def apply_pod_state(conn: Conn, node: str, state: PodState, now: float) -> WantedPod | None:
    """Applies a node's report. Returns the pod after it; None where this node has no such pod, or has another
    version of it by now."""
    row = conn.execute(_known().where(pods.c.id == state.pod, pods.c.node == node)).first()
    if row is None:
        return None
    after = after_report(_pod(conn, row), state, now)
    return None if after is None else want(conn, put_pod(conn, after))


def reconcile_pods(conn: Conn, node: str, found: Sequence[HeldPod]) -> tuple[WantedPod, ...]:
    """Returns the node's pods after its Hello; with those that were forgotten, and are there after all."""
    by_id = {one.pod: one for one in found}
    kept = (pods.c.forgotten == 0) | pods.c.id.in_(list(by_id))
    rows = conn.execute(select(pods).where(pods.c.node == node, kept).order_by(pods.c.id)).all()
    return tuple(want(conn, put_pod(conn, after_hello(_pod(conn, row), by_id.get(row.id)))) for row in rows)


def _row(conn: Conn, pod: Pod) -> dict[str, Any]:
    return {
        "account": pod.account,
        "name": pod.name,
        "wish": pod.wish,
        "version": pod.version,
        "restarts": pod.restarts,
        "body": conn.secrets.seal(json.dumps(to_builtins(pod.body) | {API_KEY: pod.api_key}).encode()),
        "node": pod.node,
        "devices": json.dumps(pod.devices),
        "gpu_type": pod.gpu_type,
        "seen": json.dumps(to_builtins(pod.seen)),
        "created_at": pod.created_at,
        "changed_at": pod.changed_at,
        "change": pod.change,
        "started_at": pod.started_at,
        "ended_at": pod.ended_at,
        "forgotten": int(pod.forgotten),
        "revision": pod.revision,
    }


def _pod(conn: Conn, row: Any) -> Pod:
    seen = json.loads(row.seen)
    body = json.loads(conn.secrets.open(row.body))
    api_key = body.pop(API_KEY, "")
    return Pod(
        id=row.id,
        account=row.account,
        name=row.name,
        body=PodBody(**{name: _tupled(value) for name, value in body.items()}),
        wish=row.wish,
        version=row.version,
        restarts=row.restarts,
        node=row.node,
        devices=tuple(json.loads(row.devices)),
        gpu_type=row.gpu_type,
        seen=ContainerReport(**seen | {"ports": tuple(PortMapping(**port) for port in seen["ports"])}),
        created_at=row.created_at,
        changed_at=row.changed_at,
        change=row.change,
        started_at=row.started_at,
        ended_at=row.ended_at,
        revision=row.revision,
        api_key=api_key,
    )


def _tupled(value: Sequence[Any] | Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
