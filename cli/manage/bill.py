"""`stoker bill`: the cost of endpoints, pods or volumes, by period and in total.

Amounts are shown with all their digits and added as decimals: the last line is the exact sum of the lines
above it, to the billionth of a dollar. In a pipe, the table is lines of tab-separated values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from stoker.cli.access import open_client
from stoker.cli.errors import CliError
from stoker.cli.short_ids import resolve_id
from stoker.cli.tables import show
from stoker.client import Client

KINDS = {"endpoint": "endpoints", "pod": "pods", "volume": "networkvolumes"}
GROUPS = {"endpoint": "endpointId", "worker": "podId", "pod": "podId", "gpu": "gpuTypeId"}
ALLOWED = {"endpoint": ("endpoint", "worker", "gpu"), "pod": ("pod", "gpu"), "volume": ()}
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class BillRequest:
    """The request for a bill. `of` is one of KINDS; `by` is one of the GROUPS that ALLOWED lists for it, None
    for the first. Times are as typed: a date, or a date and time, in UTC unless they have an offset."""

    of: str
    by: str | None
    bucket: str
    since: str | None
    until: str | None
    only: str | None


def run(url: str, data_dir: Path, request: BillRequest, *, as_json: bool) -> None:
    group = _group(request)
    with open_client(url, data_dir) as stoker:
        records = stoker.manage.bills(KINDS[request.of], **_query(_with_whole_id(stoker, request), group))
    columns = ("from", *((group, "hours") if group else ()), "disk GB", "USD")
    show(
        columns,
        _rows(records, group),
        records,
        as_json=as_json,
        footer=_sums(records, group),
        right=("hours", "disk GB", "USD"),
    )


def _with_whole_id(stoker: Client, request: BillRequest) -> BillRequest:
    """Returns the request with the whole id. A deleted resource, which may have a bill, is in no list: its id
    is used as typed."""
    if request.only is None or request.of == "volume":
        return request
    listed = (stoker.manage.pods if request.of == "pod" else stoker.manage.endpoints).list()
    known = ((str(one["id"]), str(one.get("name", ""))) for one in listed)
    return replace(request, only=resolve_id(request.only, known, KINDS[request.of]) or request.only)


def _group(request: BillRequest) -> str | None:
    """Returns the field that the API groups records by."""
    allowed = ALLOWED[request.of]
    if request.by is None:
        return GROUPS[allowed[0]] if allowed else None
    if request.by not in allowed:
        raise CliError(
            f"--by {request.by} is not possible for bills of {request.of}s; allowed: "
            f"{', '.join(allowed) or 'none: all volumes are billed together'}"
        )
    return GROUPS[request.by]


def _query(request: BillRequest, group: str | None) -> dict[str, Any]:
    if request.only is not None and request.of == "volume":
        raise CliError("all volumes are billed together: leave --id out")
    return {
        "bucketSize": request.bucket,
        "grouping": group,
        "startTime": _time("--since", request.since),
        "endTime": _time("--until", request.until),
        f"{request.of}Id": request.only,
    }


def _time(option: str, typed: str | None) -> str | None:
    if typed is None:
        return None
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        raise CliError(
            f"{option} must be a date or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z; got {typed}"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


def _rows(records: Sequence[Mapping[str, Any]], group: str | None) -> list[tuple[str, ...]]:
    """Returns the rows of the table: period, group, hours, GB, USD."""
    return [
        (
            record["time"],
            *([record.get(group, "-")] if group else []),
            *([_hours(record["timeBilledMs"])] if group else []),
            str(record["diskSpaceBilledGb"]),
            usd(_exact(record)),
        )
        for record in records
    ]


def _sums(records: Sequence[Mapping[str, Any]], group: str | None) -> tuple[str, ...]:
    hours = ("", _hours(sum(record["timeBilledMs"] for record in records))) if group else ()
    return ("in all", *hours, "", usd(sum(map(_exact, records), Decimal(0))))


def _exact(record: Mapping[str, Any]) -> Decimal:
    """Returns the exact amount: the shortest text of a float is the text that it was read from."""
    return Decimal(repr(record["amount"]))


def usd(amount: Decimal) -> str:
    """Returns the amount with all its digits, at least cents."""
    cents = amount.quantize(CENT)
    return f"{cents if cents == amount else amount.normalize():f}"


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:.4f}"
