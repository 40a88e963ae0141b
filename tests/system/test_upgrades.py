"""An upgrade of Stoker while jobs run and wait, by real processes: each ends once, and nothing is lost.

    control runs, with jobs ──> ends ──> its tables become a past release's ──> control starts, upgrades
    agent holds its job ─────────────────────────────────────────────────────> goes on, reports the end

The control of a past release does not run here any more. So its tables are made as its fixture has them, and
get all rows that have a place there.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.control.store.database.past_tables import VERSIONS, PastTables, Row
from tests.system.stack import START_S, Stack, queue_endpoint, running, until
from tests.system.test_backups import stoker

PRICES = "[prices]\ndevice_second_nano_usd = 333_333_000\n"
WAITS = queue_endpoint("waits", "recording/first_attempt_waits.py")
BILLED_S = 60.0
"""An agent reports the time of its workers after a minute."""


def columns(conn: sqlite3.Connection) -> dict[str, list[str]]:
    """Returns the names of the columns of each table."""
    tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: [column[1] for column in conn.execute(f"PRAGMA table_info({table})")] for table in tables}


def rows_of(conn: sqlite3.Connection, past: dict[str, list[str]]) -> dict[str, list[Row]]:
    """Returns all rows that have a place in the past tables, with the columns that have one."""
    found = {}
    for table, names in columns(conn).items():
        kept = [name for name in names if name in past.get(table, [])]
        if kept:
            found[table] = [dict(zip(kept, row, strict=True)) for row in _selected(conn, table, kept)]
    return found


def _selected(conn: sqlite3.Connection, table: str, names: list[str]) -> list[Any]:
    return conn.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()


def take_back(database: Path, version: int) -> None:
    """Gives the database the tables of a past release, with its rows."""
    past, made = PastTables.of(version), database.with_name("past.db")
    dataclasses.replace(past, rows={}).make(str(made))
    with sqlite3.connect(made) as empty, sqlite3.connect(database) as now:
        rows = rows_of(now, columns(empty))
    empty.close()
    now.close()
    made.unlink()
    noted = {"schema_version", "schema_works_from"}
    rows["meta"] = [row for row in rows["meta"] if row["name"] not in noted]
    rows["meta"] += [row for row in past.rows["meta"] if row["name"] in noted]
    dataclasses.replace(past, rows=rows).make(str(made))
    for left in database.parent.glob(f"{database.name}-*"):
        left.unlink()
    os.replace(made, database)


def billed_ms(stack: Stack) -> int:
    answer = stack.http.get(f"{stack.facts['http']}/v1/billing/endpoints")
    assert answer.status_code == 200, answer.text
    return sum(record["timeBilledMs"] for record in answer.json())


def may_call(stack: Stack, key: str) -> bool:
    url = f"{stack.http.base_url}waits/health"
    return httpx2.get(url, headers={"Authorization": f"Bearer {key}"}, trust_env=False).is_success


@pytest.mark.slow
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-2]])
def test_a_job_runs_through_an_upgrade_of_control_and_ends_once(tmp_path: Path, version: int) -> None:
    go, runs = tmp_path / "go", tmp_path / "runs"
    with running(tmp_path, PRICES, WAITS) as stack:
        key = stoker(stack, "key", "create", "--name", "laptop").stdout.split()[0]
        before = stack.run("waits", {"go": "/", "runs": str(tmp_path / "before")})
        ended = stack.end_of("waits", before)
        until(lambda: billed_ms(stack) > 0, BILLED_S + START_S, "a bill")
        job, waiting = (stack.run("waits", {"go": str(go), "runs": str(runs)}) for _ in range(2))
        stack.first_chunk("waits", job)
        billed = billed_ms(stack)
        stack.end_control()
        take_back(tmp_path / "data" / "stoker.db", version)
        stack.start_control()
        assert f"was upgraded from schema version {version} to {VERSIONS[-1]}" in stack.log("control")
        assert stack.status("waits", before) == ended
        assert stack.status("waits", job)["status"] == "IN_PROGRESS"
        assert stack.status("waits", waiting)["status"] == "IN_QUEUE"
        assert may_call(stack, key)
        assert billed_ms(stack) >= billed > 0
        go.touch()
        records = [stack.end_of("waits", one) for one in (job, waiting)]
        assert [record["status"] for record in records] == ["COMPLETED", "COMPLETED"], records
        assert records[0]["output"] == {"attempt": 1}, "the attempt that the agent held"
        assert len(runs.read_text().split()) == 2, "each was run once"
        found = stack.health("waits")["jobs"]
        assert (found["completed"], found["failed"], found["retried"]) == (3, 0, 0)
        assert (found["inQueue"], found["inProgress"]) == (0, 0)
