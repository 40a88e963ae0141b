"""`stoker bill`: what endpoints, pods or volumes have cost, bucket by bucket, and in all.

Amounts are told with every digit that they have, and are added up as decimals: the last line is the sum of
what stands above it, to the billionth of a dollar. In a pipe the table is lines of tab-separated values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.table import Table

from stoker.cli.access import calling
from stoker.cli.errors import CliError
from stoker.cli.terminal import plain_console

KINDS = {"endpoint": "endpoints", "pod": "pods", "volume": "networkvolumes"}
GROUPS = {"endpoint": "endpointId", "worker": "podId", "pod": "podId", "gpu": "gpuTypeId"}
ALLOWED = {"endpoint": ("endpoint", "worker", "gpu"), "pod": ("pod", "gpu"), "volume": ()}
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class BillRequest:
    """`of` is one of KINDS; `by` one of the GROUPS that its kind has, None for the kind's own. Times are as
    the caller wrote them: a date, or a date and time; without an offset they are UTC."""

    of: str
    by: str | None
    bucket: str
    since: str | None
    until: str | None
    only: str | None


def run(url: str, data_dir: Path, request: BillRequest, *, as_json: bool) -> None:
    group = _group(request)
    with calling(url, data_dir) as stoker:
        records = stoker.manage.bills(KINDS[request.of], **_query(request, group))
    if as_json:
        print(json.dumps(records, indent=2 if sys.stdout.isatty() else None))
    elif sys.stdout.isatty():
        plain_console().print(_table(records, group))
    else:
        for row in _rows(records, group):
            print("\t".join(row))


def _group(request: BillRequest) -> str | None:
    """The field of the API that records are grouped by."""
    allowed = ALLOWED[request.of]
    if request.by is None:
        return GROUPS[allowed[0]] if allowed else None
    if request.by not in allowed:
        raise CliError(
            f"--by {request.by} is nothing that bills of {request.of}s are grouped by; allowed: "
            f"{', '.join(allowed) or 'none: they are one sum'}"
        )
    return GROUPS[request.by]


def _query(request: BillRequest, group: str | None) -> dict[str, Any]:
    if request.only is not None and request.of == "volume":
        raise CliError("bills of volumes are one sum: leave --id out")
    return {
        "bucketSize": request.bucket,
        "grouping": group,
        "startTime": _time("--since", request.since),
        "endTime": _time("--until", request.until),
        f"{request.of}Id": request.only,
    }


def _time(option: str, given: str | None) -> str | None:
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise CliError(
            f"{option} must be a date or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z; got {given}"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


def _rows(records: Sequence[Mapping[str, Any]], group: str | None) -> list[tuple[str, ...]]:
    """Bucket, group, hours, GB, USD."""
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


def _table(records: Sequence[Mapping[str, Any]], group: str | None) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True)
    table.add_column("from", "in all")
    if group:
        table.add_column(group)
        table.add_column("hours", _hours(sum(record["timeBilledMs"] for record in records)), justify="right")
    table.add_column("disk GB", justify="right")
    table.add_column("USD", usd(sum(map(_exact, records), Decimal(0))), justify="right")
    for row in _rows(records, group):
        table.add_row(*row)
    return table


def _exact(record: Mapping[str, Any]) -> Decimal:
    """What was written: the shortest text of a float is the one that it was read from."""
    return Decimal(repr(record["amount"]))


def usd(amount: Decimal) -> str:
    """All its digits, and cents at least."""
    cents = amount.quantize(CENT)
    return f"{cents if cents == amount else amount.normalize():f}"


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:.4f}"
