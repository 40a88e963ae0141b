"""Usage in the store: what workers and pods held their devices for, and what each span cost.

A span is identified by (owner, boot, n). Of several reports the longest counts: an agent lets a span grow
until it sends it, and a copy of its disk, or its own next start, may tell of it as it was before. The time
that is new is added; a shorter one, or one that differs in anything but its end, changes nothing. The price
of time is that of the moment in which it arrives first. It goes into the bills of the hours that it lies in,
in the same transaction. A span of an endpoint or a pod that there never was is dropped, and so is one that
comes a week late: by then it is not known any more whether it came before. One that is longer than that, or
lies more than a day ahead, comes from a clock that is wrong, and would be billed as years.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.rules.billing import FREE, Charge, PriceList, by_hour, device_time
from stoker.control.rules.types import Cost
from stoker.control.store.billing.bills import Payer, add_to_bill, node_facts, seller
from stoker.control.store.database.opening import Conn
from stoker.wire.messages import Usage

USAGE_LIFE_S = 7 * 86_400.0
AHEAD_S = 86_400.0
_KEPT_S = USAGE_LIFE_S + 3_600.0

_INSERT = """
INSERT INTO usage (owner, boot, n, account, kind, resource, state, gpu_type, devices, began_ms, ended_ms,
                   billed_ms, nano_usd)
VALUES (:owner, :boot, :n, :account, :kind, :resource, :state, :gpu_type, :devices, :began_ms, :ended_ms,
        :billed_ms, :nano_usd)
ON CONFLICT DO NOTHING
"""

_SHORTER = """
SELECT ended_ms FROM usage
WHERE owner = :owner AND boot = :boot AND n = :n AND kind = :kind AND resource = :resource
  AND state = :state AND devices = :devices AND began_ms = :began_ms AND ended_ms < :ended_ms
"""

_GROW = """
UPDATE usage SET ended_ms = :ended_ms, billed_ms = billed_ms + :billed_ms, nano_usd = nano_usd + :nano_usd
WHERE owner = :owner AND boot = :boot AND n = :n
"""


class _Owner(Struct, frozen=True):
    payer: Payer
    share: float
    free: bool


def add_usage(conn: Conn, node: str, span: Usage, prices: PriceList, now: float) -> Cost | None:
    """Stores and bills the time that is new. Returns what it costs; None where nothing is new."""
    life_ms = USAGE_LIFE_S * 1000
    if not (0 < span.ended_ms - span.began_ms <= life_ms):
        return None
    if not (now * 1000 - life_ms <= span.ended_ms <= (now + AHEAD_S) * 1000):
        return None
    owner = _owner(conn, node, span)
    if owner is None:
        return None
    parts = _parts(owner, span, prices)
    if not _stored(conn, owner.payer, span, parts):
        parts = _grown(conn, owner, span, prices)
    for hour, cost in parts:
        if cost.billed_ms:
            add_to_bill(conn, owner.payer, hour, cost)
    nano_usd = sum(cost.nano_usd for _, cost in parts)
    return Cost(owner.payer.kind, owner.payer.resource, nano_usd) if nano_usd else None


def _owner(conn: Conn, node: str, span: Usage) -> _Owner | None:
    at = node_facts(conn, node)
    device_type = at.type_of(span.devices)
    if span.kind == "pod":
        row = conn.run("SELECT account FROM pods WHERE id = :pod", {"pod": span.owner}).fetchone()
        if row is None:
            return None
        return _Owner(Payer(row[0], "pod", span.owner, gpu_type=device_type), 1.0, free=False)
    sold = seller(conn, span.endpoint, span.version)
    if sold is None:
        return None
    payer = Payer(
        sold.account,
        "endpoint",
        span.endpoint,
        span.owner,
        device_type,
        at.data_center,
        sold.image,
        sold.template,
    )
    return _Owner(payer, sold.share, free=sold.by_output)


def _parts(owner: _Owner, span: Usage, prices: PriceList) -> list[tuple[int, Charge]]:
    """Returns what the span costs in each of its hours."""
    return [
        (hour, _cost(owner, span, prices, began, ended))
        for hour, began, ended in by_hour(span.began_ms, span.ended_ms)
    ]


def _cost(owner: _Owner, span: Usage, prices: PriceList, began_ms: int, ended_ms: int) -> Charge:
    if owner.free:
        return FREE
    return device_time(
        prices,
        owner.payer.gpu_type,
        span.state,
        began_ms,
        ended_ms,
        devices=len(span.devices),
        share=owner.share,
    )


def _stored(conn: Conn, payer: Payer, span: Usage, parts: list[tuple[int, Charge]]) -> bool:
    """Stores the span. Returns False where it is known already."""
    return conn.run(_INSERT, _row(payer, span, parts)).rowcount > 0


def _grown(conn: Conn, owner: _Owner, span: Usage, prices: PriceList) -> list[tuple[int, Charge]]:
    """Returns what the new time of a known span costs; nothing where no time is new."""
    known = conn.run(_SHORTER, _row(owner.payer, span, [])).fetchone()
    if known is None:
        return []
    parts = _parts(owner, replace(span, began_ms=known[0]), prices)
    conn.run(_GROW, _row(owner.payer, span, parts))
    return parts


def _row(payer: Payer, span: Usage, parts: list[tuple[int, Charge]]) -> dict[str, object]:
    return {
        "owner": span.owner,
        "boot": span.boot,
        "n": span.n,
        "account": payer.account,
        "kind": span.kind,
        "resource": payer.resource,
        "state": span.state,
        "gpu_type": payer.gpu_type,
        "devices": len(span.devices),
        "began_ms": span.began_ms,
        "ended_ms": span.ended_ms,
        "billed_ms": sum(cost.billed_ms for _, cost in parts),
        "nano_usd": sum(cost.nano_usd for _, cost in parts),
    }


_FORGET = """
DELETE FROM usage WHERE (owner, boot, n) IN
    (SELECT owner, boot, n FROM usage WHERE began_ms < :before ORDER BY began_ms LIMIT :limit)
"""


def usage_due(conn: Conn, now: float) -> bool:
    """Returns whether there is usage to forget."""
    before = int((now - _KEPT_S) * 1000)
    oldest = "SELECT 1 FROM usage WHERE began_ms < :before ORDER BY began_ms LIMIT 1"
    return conn.run(oldest, {"before": before}).fetchone() is not None


def forget_usage(conn: Conn, now: float, limit: int) -> int:
    """Deletes spans so old that they are not taken any more; their bills stay. Returns how many were
    deleted."""
    before = int((now - _KEPT_S) * 1000)
    return conn.run(_FORGET, {"before": before, "limit": limit}).rowcount
