"""Statements whose results nobody reads: sent with the next, in order, and only with their transaction."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from stoker.control import store
from stoker.control.store import Conn
from stoker.control.store.database.commits import run_batch
from stoker.control.store.database.opening import UNAWARE
from stoker.control.store.database.statements import SQLITE, Written
from stoker.control.store.tables.accounts import meta

PUT = """
INSERT INTO meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
DELETE = "DELETE FROM meta WHERE name = :name"
READ = "SELECT value FROM meta WHERE name = :name"
TWICE = "INSERT INTO accounts (id, created_at) VALUES (:id, 0)"
"""Fails: the account is there."""


def put(conn: Conn, value: str, name: str = "letters") -> None:
    conn.write(PUT, {"name": name, "value": value.encode()})


def read(conn: Conn, name: str = "letters") -> str | None:
    row = conn.run(READ, {"name": name}).fetchone()
    return None if row is None else bytes(row[0]).decode()


def test_writes_go_together_before_what_could_notice(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conn, sent = bench.store.writer, []
    real = conn._database.run_all

    def run_all(raw: Any, statements: Any) -> None:
        sent.append(len(statements))
        real(raw, statements)

    monkeypatch.setattr(conn._database, "run_all", run_all)
    conn.begin()
    for letter in "abcd":
        put(conn, letter)
        conn.run("renew", {"node": "n1", "session": 1, "now": 1.0})
    assert sent == []
    assert read(conn) == "d"
    put(conn, "e")
    assert conn.execute(select(meta.c.value).where(meta.c.name == "letters")).scalar() == b"e"
    put(conn, "f")
    conn.run_many(PUT, [{"name": "letters", "value": letter} for letter in (b"g", b"h")])
    put(conn, "i")
    conn.commit()
    assert sent == [4]
    assert read(conn) == "i"


def test_statements_that_do_not_send_the_writes_touch_none_of_their_tables() -> None:
    sources = Path(store.__file__).parent.rglob("*.py")
    written = {name for source in sources for name in re.findall(r'conn\.write\("(\w+)"', source.read_text())}
    assert written == {"insert_input", "insert_result", "count"}
    texts = Written(SQLITE)
    tables = {re.findall(r"INSERT INTO (\w+)", texts[name])[0] for name in written}
    for name in UNAWARE:
        assert tables.isdisjoint(re.findall(r"\w+", texts[name])), name


def test_a_write_is_rolled_back_with_its_transaction(bench: Any) -> None:
    conn = bench.store.writer
    conn.begin()
    put(conn, "a")
    conn.rollback()
    conn.begin()
    assert read(conn) is None
    conn.commit()


def test_a_write_that_fails_at_the_commit_fails_its_own_function_only(bench: Any) -> None:
    conn = bench.store.writer

    def good(letter: str) -> Any:
        return lambda conn: put(conn, letter)

    def bad(conn: Conn) -> str:
        put(conn, "lost")
        conn.write(TWICE, {"id": "default"})
        return "not reported"

    (first, bad_one, last) = run_batch(conn, [good("a"), bad, good("b")])
    assert first == last == (None, None)
    assert bad_one[0] is None
    assert "accounts" in str(bad_one[1])
    assert read(conn) == "b"


@pytest.mark.parametrize("before", [0, 1])
def test_a_statement_is_run_again_after_failures_at_any_count(bench: Any, before: int) -> None:
    """The driver prepares a statement at its sixth use, which may be one that a failure forestalls."""
    conn = bench.store.writer
    conn.begin()
    for number in range(before):
        put(conn, str(number))
    conn.commit()
    for number in range(12):
        conn.begin()
        conn.write(TWICE, {"id": "default"})
        for name in ("letters", *"xyz"):
            put(conn, "lost", name)
        with pytest.raises(TAKEN):
            read(conn)
        conn.rollback()
        conn.begin()
        put(conn, str(number))
        assert read(conn) == str(number)
        conn.commit()


TAKEN = (sqlite3.IntegrityError, psycopg.errors.UniqueViolation)
KINDS = ["write", "run", "delete", "read", "fail"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("abc")), max_size=60)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_waiting_changes_no_result(bench: Any, steps: list[tuple[str, str]]) -> None:
    """Each run in order, at once or later: what is read is the same. A statement that fails takes what was
    done since BEGIN with it, and no other."""
    conn, values = bench.store.writer, dict[str, str]()
    conn.begin()
    try:
        for number, (step, name) in enumerate(steps):
            letter = str(number)
            match step:
                case "write":
                    put(conn, letter, name)
                case "run":
                    conn.run(PUT, {"name": name, "value": letter.encode()})
                case "delete":
                    conn.write(DELETE, {"name": name})
                    values.pop(name, None)
                case "read":
                    assert read(conn, name) == values.get(name)
                case "fail":
                    conn.write(TWICE, {"id": "default"})
                    for other in "abc":
                        put(conn, letter, other)
                    with pytest.raises(TAKEN):
                        read(conn)
                    conn.rollback()
                    values.clear()
                    conn.begin()
            if step in ("write", "run"):
                values[name] = letter
        assert {name: read(conn, name) for name in "abc"} == {name: values.get(name) for name in "abc"}
    finally:
        conn.rollback()
