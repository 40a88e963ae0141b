"""The bills: cost by day as a chart, by endpoint as a table, and as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from nicegui import ui

from stoker.page.access.connections import Connection
from stoker.page.views.frame import attempt, empty, frame
from stoker.page.views.style import column

Row = Mapping[str, Any]

KIND_NAMES = {"endpoints": "endpoints", "pods": "pods", "networkvolumes": "network volumes"}
KINDS = {"endpoints": "endpointId", "pods": "podId", "networkvolumes": ""}


async def show(connection: Connection) -> None:
    with frame(connection, "/billing", "Billing"):
        if not connection.rights.looks:
            empty("Your key may not look at bills.", "payments")
            return
        kind = ui.select(KIND_NAMES, value="endpoints", label="Bills of").classes("w-60")
        kind.props('aria-label="Bills of"')
        place = ui.column().classes("w-full gap-4")

        async def draw() -> None:
            rows = await attempt(lambda: connection.client.manage.bills(kind.value))
            place.clear()
            with place:
                if rows:
                    _draw(rows, KINDS[kind.value])
                else:
                    empty(
                        "Nothing was billed yet. A job's cost appears here within a minute of its end.",
                        "payments",
                    )

        kind.on_value_change(draw)
        await draw()


def _draw(rows: list[Row], name: str) -> None:
    days, series = by_day(rows, name)
    chart = ui.echart(
        {
            "color": ["#ea580c", "#0d9488", "#64748b", "#ca8a04", "#7c3aed"],
            "grid": {"left": 64, "right": 16, "top": 40, "bottom": 32},
            "tooltip": {"trigger": "axis"},
            "legend": {"textStyle": {"color": "#7c8aa0"}},
            "xAxis": {"type": "category", "data": days},
            "yAxis": {"type": "value", "name": "USD"},
            "series": [
                {"name": title, "type": "bar", "stack": "cost", "barMaxWidth": 48, "data": values}
                for title, values in series.items()
            ],
        }
    )
    chart.classes("w-full h-64").props('role=img aria-label="Cost by day, in US dollars"')
    columns = [column("name", "Name"), column("amount", "USD", "right")]
    totals = [{"name": title, "amount": f"{sum(values):.6f}"} for title, values in series.items()]
    ui.table(rows=totals, columns=columns, row_key="name")
    ui.button(
        "CSV",
        icon="download",
        on_click=lambda: ui.download.content(as_csv(rows), "stoker-bills.csv", "text/csv"),
    ).props("outline").classes("self-start")


def by_day(rows: Iterable[Row], name: str) -> tuple[list[str], dict[str, list[float]]]:
    """Returns the days, in order, and for each name its cost of each day in US dollars."""
    rows = list(rows)
    days = sorted({str(row.get("time", ""))[:10] for row in rows})
    series: dict[str, list[float]] = {}
    for row in rows:
        values = series.setdefault(str(row.get(name) or "all"), [0.0] * len(days))
        values[days.index(str(row.get("time", ""))[:10])] += float(row.get("amount") or 0)
    return days, dict(sorted(series.items()))


def as_csv(rows: Iterable[Row]) -> str:
    """Returns the rows as CSV. An apostrophe stands before what a spreadsheet takes for a formula."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _harmless(value: Any) -> Any:
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )
