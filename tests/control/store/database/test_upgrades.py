"""Upgrades of the tables of each past release, with jobs running, endpoints, keys and bills: all is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from stoker.control import store
from stoker.control.store.database.opening import schema_problem, tables_of, upgrade_tables
from stoker.control.store.database.upgrades import ADDED
from stoker.control.store.database.versions import Tables, suit, upgrade_refusal
from stoker.control.store.resources import keys
from stoker.control.store.tables.schema import SCHEMA_VERSION, WORKS_FROM, metadata
from stoker.wire.messages import Outcome, Span
from tests.control.store.conftest import Bench
from tests.control.store.database.past_tables import VERSIONS, PastTables

EARLIER = VERSIONS[:-1]


@pytest.fixture
def place(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a database may be made."""
    if database == "sqlite":
        yield str(tmp_path / "stoker.db")
        return
    server = request.getfixturevalue("postgres")
    made = server.fresh()
    yield made
    server.drop(made)


def opened(past: PastTables, place: str, **options: Any) -> store.Store:
    return store.open_store(place, secrets=past.secrets, now=1_010.0, **options)


def schema(found: store.Store) -> dict[str, set[tuple[str, ...]]]:
    """By table: the name, type, default and nullability of each column, and the names of its indexes."""
    seen = inspect(found.writer.sql)
    return {
        table: {
            (column["name"], str(column["type"]), str(column["default"]), str(column["nullable"]))
            for column in seen.get_columns(table)
        }
        | {(str(index["name"]),) for index in seen.get_indexes(table)}
        for table in seen.get_table_names()
    }


def held(found: store.Store, table: str, row: Any) -> bool:
    """Returns whether the row is still there, column by column."""
    rows = found.writer.execute(metadata.tables[table].select()).mappings()
    return any(
        all(bytes(one[n]) == v if isinstance(v, bytes) else one[n] == v for n, v in row.items())
        for one in rows
    )


@pytest.mark.parametrize("version", EARLIER)
def test_no_row_of_an_earlier_version_is_lost(version: int, place: str) -> None:
    past = PastTables.of(version)
    past.make(place)
    found = opened(past, place)
    assert tables_of(found.writer) == Tables(SCHEMA_VERSION, WORKS_FROM)
    for table, rows in past.rows.items():
        missing = [row for row in rows if not held(found, table, row)]
        assert [row for row in missing if row.get("name") != "schema_version"] == []
    found.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_ran_before_an_upgrade_ends_after_it(version: int, place: str) -> None:
    """And is paid for; its endpoint, its keys and their secrets are what they were."""
    past = PastTables.of(version)
    past.make(place)
    found = opened(past, place)
    bench, conn = Bench(found, {"n1": 1}), found.writer
    outcome = Outcome("running", 1, "w1", "completed", b"2", execution_ms=9, spans=(Span("e", "ms", 9, 900),))
    bench.report(1_011.0, outcome)
    assert [claimed.job for claimed in bench.claim(1_012.0, bench.slot())] == ["waiting"]
    states = [(job, bench.view(1_013.0, job)) for job in ("ended", "running", "waiting")]
    assert [(job, view and (str(view.state), view.output)) for job, view in states] == [
        ("ended", ("COMPLETED", b'{"ok":1}')),
        ("running", ("COMPLETED", b"2")),
        ("waiting", ("IN_PROGRESS", None)),
    ]
    assert bench.rows("SELECT SUM(nano_usd) FROM bills") == [(90_000 + 700 + 900,)]
    assert bench.endpoint("echo").run.env == {"TOKEN": "of-the-handler"}
    assert bench.do(store.read_secrets) == {"default": {"hub": "of-the-hub"}}
    assert bench.do(store.webhook_secret) == past.tokens["webhook_secret"]
    assert keys.find_caller(conn, past.tokens["key"], 1_014.0) is not None
    assert keys.find(conn, "join", past.tokens["join"]) is not None
    found.close()


@pytest.mark.parametrize("version", EARLIER)
def test_an_upgraded_schema_is_that_of_a_fresh_store(version: int, place: str, bench: Any) -> None:
    past = PastTables.of(version)
    past.make(place)
    found = opened(past, place)
    assert schema(found) == schema(bench.store)
    found.close()


def test_the_tables_of_each_version_are_kept_and_lead_to_the_next(place: str, bench: Any) -> None:
    """A change of the tables without a new version shows in the last of them."""
    assert sorted(ADDED) == list(range(min(ADDED), SCHEMA_VERSION))
    assert list(range(min(ADDED), SCHEMA_VERSION + 1)) == VERSIONS
    past = PastTables.of(SCHEMA_VERSION)
    past.make(place)
    found = opened(past, place, tables="use")
    assert schema(found) == schema(bench.store)
    found.close()


def test_an_upgrade_is_logged_in_one_line(place: str, caplog: pytest.LogCaptureFixture) -> None:
    past = PastTables.of(EARLIER[0])
    past.make(place)
    caplog.set_level(logging.INFO, "stoker.control.store.database.opening")
    for _ in range(2):
        opened(past, place).close()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert f"was upgraded from schema version {EARLIER[0]} to {SCHEMA_VERSION}: added jobs.backoffs," in line
    assert "hidden-password" not in line


# ---- without a start of control -----------------------------------------------------------------------


def test_a_command_that_uses_a_store_leaves_earlier_tables_as_they_are(place: str) -> None:
    past = PastTables.of(EARLIER[0])
    past.make(place)
    with pytest.raises(store.StoreError, match="start its control, or run stoker database upgrade"):
        opened(past, place, tables="use")
    found = opened(past, place, tables="look")
    assert tables_of(found.writer) == Tables(EARLIER[0], EARLIER[0])
    assert schema_problem(found.writer) == f"the schema has version {EARLIER[0]}, and not {SCHEMA_VERSION}"
    done = upgrade_tables(found)
    assert done is not None
    assert (done.found, done.wanted) == (EARLIER[0], SCHEMA_VERSION)
    assert upgrade_tables(found) is None
    assert schema_problem(found.writer) == ""
    found.close()


def test_a_store_works_beside_later_tables_that_suit_it(place: str) -> None:
    """As this one's tables will be, once a later Stoker has added to them."""
    past = PastTables.of(SCHEMA_VERSION)
    past.make(place)
    found = opened(past, place)
    Bench(found).rows("SELECT 1")
    found.writer.execute(
        text("UPDATE meta SET value = :to WHERE name = 'schema_version'").bindparams(to=b"99")
    )
    assert schema_problem(found.writer) == ""
    found.close()
    later = opened(past, place)
    assert tables_of(later.writer) == Tables(99, WORKS_FROM)
    later.close()


versions = st.integers(1, 30)


@given(versions, versions, versions)
def test_a_stoker_suits_tables_from_the_version_that_they_name(
    found: int, works_from: int, wanted: int
) -> None:
    assert suit(Tables(found, works_from), wanted) == (wanted in range(works_from, found + 1))


@given(versions, versions, versions, st.booleans())
def test_an_upgrade_is_refused_where_a_control_that_runs_would_not_suit_it(
    found: int, wanted: int, works_from: int, control_runs: bool
) -> None:
    after = Tables(max(found, wanted), min(works_from, max(found, wanted)))
    why = upgrade_refusal(Tables(found, found), after, control_runs=control_runs)
    assert bool(why) == (control_runs and not suit(after, found))
    assert not why or (f"version {found}" in why and "stop it first" in why)
