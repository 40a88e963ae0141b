"""Bills in the store: the hours' sums, what is added to them, and what is read of them.

A row is one hour of one worker, pod or volume. It is only ever added to, in the transaction that stores what
the amount is for: a span of usage, a job's output, or up to when a disk or volume is billed. So nothing is
billed twice and nothing is left out, whichever process is killed when. What a bill is the sum of:
`control.rules.billing`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from sqlalchemy import Column, ColumnElement, Table, func, insert, literal, select

from stoker.control.rules.billing import (
    CPU,
    HOUR_MS,
    HOUR_S,
    Charge,
    HourRow,
    PriceList,
    Space,
    by_hour,
    space,
)
from stoker.control.rules.types import Cost
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.secrets import Encryption
from stoker.control.store.tables.billing import bills, spaces
from stoker.control.store.tables.resources import pods, volumes
from stoker.wire.messages import Span

LOCAL = "local:"

_ADD = """
INSERT INTO bills (account, kind, hour, resource, worker, gpu_type, data_center, image, template,
                   billed_ms, nano_usd)
VALUES (:account, :kind, :hour, :resource, :worker, :gpu_type, :data_center, :image, :template,
        :billed_ms, :nano_usd)
ON CONFLICT (account, kind, hour, resource, worker, gpu_type, data_center, image, template) DO UPDATE
SET billed_ms = bills.billed_ms + excluded.billed_ms,
    nano_usd = bills.nano_usd + excluded.nano_usd
"""


class Payer(Struct, frozen=True):
    """The payer of a cost, and what for: the key of a bill's row, but for its hour. `kind` is endpoint, pod
    or volume."""

    account: str
    kind: str
    resource: str
    worker: str = ""
    gpu_type: str = ""
    data_center: str = ""
    image: str = ""
    template: str = ""


def add_to_bill(conn: Conn, payer: Payer, hour: int, charge: Charge) -> None:
    conn.run(
        _ADD,
        {
            "account": payer.account,
            "kind": payer.kind,
            "hour": hour,
            "resource": payer.resource,
            "worker": payer.worker,
            "gpu_type": payer.gpu_type,
            "data_center": payer.data_center,
            "image": payer.image,
            "template": payer.template,
            "billed_ms": charge.billed_ms,
            "nano_usd": charge.nano_usd,
        },
    )


# ---- nodes and endpoints, as bills name them --------------------------------------------------------


class NodeFacts(Struct, frozen=True):
    """The facts about a node that bills name. `types` are device types by uuid; a processor's is CPU."""

    types: dict[str, str] = field(default_factory=dict)
    data_center: str = ""

    def type_of(self, devices: Sequence[str]) -> str:
        """Returns the type of these devices; "" where it is not known."""
        return next((self.types[uuid] for uuid in devices if uuid in self.types), "")

    @property
    def only_type(self) -> str:
        """The type of all GPUs of the node, or of its processors where it has no GPU; "" where there are
        several, or none is known."""
        found = set(self.types.values()) - {CPU} or set(self.types.values())
        return found.pop() if len(found) == 1 else ""


def node_facts(conn: Conn, node: str) -> NodeFacts:
    row = conn.run("SELECT devices, facts FROM nodes WHERE id = :node", {"node": node}).fetchone()
    return NodeFacts() if row is None else _facts(*row)


@lru_cache(1024)
def _facts(devices: str, facts: str) -> NodeFacts:
    types = {one["uuid"]: CPU if one["kind"] == "cpu" else one["name"] for one in json.loads(devices)}
    return NodeFacts(types, json.loads(facts).get("data_center", ""))


class Seller(Struct, frozen=True):
    """An endpoint as bills see it. `by_output`: callers pay for what its jobs made, and not for time. So
    nobody pays for a replay, whose version has no prices."""

    account: str
    by_output: bool
    template: str
    image: str
    share: float


_SELLER = """
SELECT e.account, e.hosted, e.template, v.run, e.asked FROM endpoints e LEFT JOIN endpoint_versions v
ON v.endpoint = e.id AND v.version = COALESCE(CAST(:version AS BIGINT), e.version) WHERE e.id = :endpoint
"""


def seller(conn: Conn, endpoint: str, version: int | None = None) -> Seller | None:
    """Returns the endpoint as of this version, or the current one; None where there is no such endpoint."""
    row = conn.run(_SELLER, {"endpoint": endpoint, "version": version}).fetchone()
    if row is None:
        return None
    account, hosted, template, sealed, asked = row
    image, share = ("", 1.0) if sealed is None else _image_and_share(conn.secrets, bytes(sealed))
    return Seller(account, bool(hosted) or "replay" in json.loads(asked), template, image, share)


@lru_cache(1024)
def _image_and_share(secrets: Encryption, sealed: bytes) -> tuple[str, float]:
    """Returns the image and the share of a version, which never changes. Spans come by the thousand; to open
    the version costs more than the rest."""
    run = json.loads(secrets.open(sealed))
    return run["image"] or LOCAL + run["handler"], run["needs"]["share"]


# ---- outputs ------------------------------------------------------------------------------------


def bill_outputs(
    conn: Conn, node: str, worker: str, account: str, endpoint: str, spans: Sequence[Span], now: float
) -> Cost:
    """Bills what a job made, in the hour in which its end was stored, and returns what that costs. Each span
    at most once: the caller must ensure that."""
    at, sold = node_facts(conn, node), seller(conn, endpoint)
    payer = Payer(
        account,
        "endpoint",
        endpoint,
        worker,
        at.only_type,
        at.data_center,
        sold.image if sold else "",
        sold.template if sold else "",
    )
    for span in spans:
        add_to_bill(conn, payer, int(now * 1000) // HOUR_MS, Charge(0, span.nano_usd))
    return Cost("endpoint", endpoint, sum(span.nano_usd for span in spans))


# ---- disks and volumes --------------------------------------------------------------------------


def bill_pods(conn: Conn, prices: PriceList, now: float, pod: str | None = None) -> None:
    """Bills the disks of all pods, or of one pod, up to now, or to its end. To be done before a size
    changes."""
    due = pods.c.ended_at.is_(None) | (pods.c.billed_to < pods.c.ended_at)
    for row in conn.execute(select(pods).where(due, _one(pods.c.id, pod))).all():
        body = json.loads(conn.secrets.open(row.body))
        device_type = CPU if body.get("compute") == "CPU" else row.gpu_type
        payer = Payer(row.account, "pod", row.id, gpu_type=device_type)
        gb = (body.get("disk_gb") or 0) + (body.get("volume_gb") or 0)
        _bill_space(conn, "pods", payer, row.billed_to, _until(row.ended_at, now), gb, prices.disk_gb_hour)


def bill_volumes(conn: Conn, prices: PriceList, now: float, volume: str | None = None) -> None:
    """Bills all network volumes, or one volume, up to now, or to its end. To be done before a size
    changes."""
    due = volumes.c.deleted_at.is_(None) | (volumes.c.billed_to < volumes.c.deleted_at)
    for row in conn.execute(select(volumes).where(due, _one(volumes.c.id, volume))).all():
        payer = Payer(row.account, "volume", row.id, data_center=row.data_center)
        until = _until(row.deleted_at, now)
        _bill_space(conn, "volumes", payer, row.billed_to, until, row.size_gb, prices.volume_gb_hour)


def spaces_due(conn: Conn) -> bool:
    """Returns whether there is a disk or a volume that is still to be billed."""
    return conn.run(_SPACES_DUE, {}).fetchone() is not None


_SPACES_DUE = """
SELECT 1 FROM pods WHERE ended_at IS NULL OR billed_to < ended_at
UNION ALL SELECT 1 FROM volumes WHERE deleted_at IS NULL OR billed_to < deleted_at LIMIT 1
"""


def _one(column: Column[str], wanted: str | None) -> ColumnElement[bool]:
    return column.is_not(None) if wanted is None else column == wanted


def _until(ended_at: float | None, now: float) -> float:
    return now if ended_at is None else min(ended_at, now)


_BILLED = {
    table: f"UPDATE {table} SET billed_to = :until WHERE id = :id AND billed_to = :since"
    for table in ("pods", "volumes")
}


def _bill_space(
    conn: Conn, table: str, payer: Payer, since: float, until: float, gb: int, gb_hour: int
) -> None:
    """Bills the space of a resource; bills nothing if another process has just done so."""
    if until <= since:
        return
    values = {"id": payer.resource, "since": since, "until": until}
    if conn.run(_BILLED[table], values).rowcount and gb:
        for hour, first, last in by_hour(int(since * 1000), int(until * 1000)):
            add_to_bill(conn, payer, hour, Charge(0, space(gb_hour, gb, first, last)))
        _keep_space(conn, payer, since, until, gb)


_LONGER = """
UPDATE spaces SET ended = :until
WHERE kind = :kind AND resource = :resource AND gpu_type = :gpu_type AND gb = :gb AND ended = :since
"""


def _keep_space(conn: Conn, payer: Payer, since: float, until: float, gb: int) -> None:
    """Stores the stretch, or extends the stretch before it where the size is the same."""
    row = {
        "account": payer.account,
        "kind": payer.kind,
        "resource": payer.resource,
        "gpu_type": payer.gpu_type,
        "gb": gb,
    }
    if not conn.run(_LONGER, row | {"since": since, "until": until}).rowcount:
        conn.execute(insert(spaces), row | {"began": since, "ended": until})


# ---- reading ------------------------------------------------------------------------------------


class BillQuery(Struct, frozen=True):
    """A choice of rows: of `hours` (first, and the first that is not meant), of these, of any where None.
    `by` is the column that they are grouped by; "": all are one group."""

    account: str
    kind: str
    hours: tuple[int, int]
    by: str = ""
    resource: str | None = None
    gpu_types: tuple[str, ...] | None = None
    data_centers: tuple[str, ...] | None = None
    image: str | None = None
    template: str | None = None


def read_bills(conn: Conn, query: BillQuery, *, days: bool = False) -> list[HourRow]:
    """Returns the bills' rows, summed up by hour, group and resource; `days`: by day, which is named by its
    first hour."""
    first, end = query.hours
    hour = bills.c.hour // 24 * 24 if days else bills.c.hour
    keys: list[Any] = [hour.label("began"), _name(bills, query).label("name")]
    sums = func.sum(bills.c.billed_ms), func.sum(bills.c.nano_usd)
    wanted = (
        select(*keys, *sums)
        .where(
            bills.c.account == query.account,
            bills.c.kind == query.kind,
            bills.c.hour >= first,
            bills.c.hour < end,
            *_filters(query),
        )
        .group_by("began", "name")
    )
    return [HourRow(row[0], row[1], int(row[2]), int(row[3])) for row in conn.execute(wanted)]


def read_spaces(conn: Conn, query: BillQuery) -> list[Space]:
    """Returns the stretches of disks and volumes, which endpoints have none of: cut to begin with the query's
    hours."""
    first, end = (hour * HOUR_S for hour in query.hours)
    wanted = select(_name(spaces, query), spaces.c.began, spaces.c.ended, spaces.c.gb).where(
        spaces.c.account == query.account,
        spaces.c.kind == query.kind,
        spaces.c.ended > first,
        spaces.c.began < end,
        *([spaces.c.resource == query.resource] if query.resource is not None else []),
        *([spaces.c.gpu_type.in_(query.gpu_types)] if query.gpu_types is not None else []),
    )
    return [Space(name, max(began, first), ended, gb) for name, began, ended, gb in conn.execute(wanted)]


def _name(table: Table, query: BillQuery) -> ColumnElement[str]:
    known = query.by in table.c
    return table.c[query.by] if known else literal("")


def _filters(query: BillQuery) -> list[ColumnElement[bool]]:
    single = {"resource": query.resource, "image": query.image, "template": query.template}
    several = {"gpu_type": query.gpu_types, "data_center": query.data_centers}
    return [
        *(bills.c[name] == value for name, value in single.items() if value is not None),
        *(bills.c[name].in_(values) for name, values in several.items() if values is not None),
    ]
