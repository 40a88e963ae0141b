"""Several secret keys: the first seals, all open; a replaced key file is noticed; and values sealed anew."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import LargeBinary, select

from stoker.control import store
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import EndpointVersion
from stoker.control.store.database import rotation, secrets
from stoker.control.store.database.rotation import SEALED, count_stale, reseal
from stoker.control.store.database.secrets import (
    FILE,
    VARIABLE,
    Encryption,
    SecretKeyError,
    load_secrets,
    replace_key_file,
)
from stoker.control.store.tables.schema import metadata

KEYS = [Fernet.generate_key() for _ in range(4)]
lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)


@given(lists, lists, st.sampled_from([b"\n", b",", b" , ", b"\r\n"]))
def test_the_first_key_seals_and_all_open(ours: list[bytes], theirs: list[bytes], between: bytes) -> None:
    mine, other = Encryption(between.join(ours)), Encryption(between.join(theirs) + b"\n")
    sealed = mine.seal(b"x")
    assert Encryption(ours[0]).open(sealed) == b"x"
    if ours[0] in theirs:
        assert other.open(sealed) == b"x"
        anew = other.resealed(sealed)
        assert (anew is None) == (ours[0] == theirs[0])
        assert anew is None or Encryption(theirs[0]).open(anew) == b"x"
    else:
        with pytest.raises(SecretKeyError, match="written with another key"):
            other.open(sealed)


def test_a_key_file_that_is_replaced_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And only if the key in use is among its keys: nothing in the database would be opened otherwise."""
    running = load_secrets(tmp_path, {})
    first = running.keys[0]
    before = running.seal(b"x")
    replace_key_file(tmp_path / FILE, [KEYS[0], first])
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert Encryption(KEYS[0]).open(running.seal(b"y")) == b"y"
    assert running.open(before) == b"x"
    assert caplog.records == []
    replace_key_file(tmp_path / FILE, [KEYS[1]])
    for _ in range(2):
        assert Encryption(KEYS[0]).open(running.seal(b"y")) == b"y"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "was replaced by other keys; the keys of before stay in use" in caplog.text
    (tmp_path / FILE).write_text("no key")
    assert running.open(before) == b"x"
    (tmp_path / FILE).unlink()
    assert running.open(before) == b"x"
    replace_key_file(tmp_path / FILE, [KEYS[0]])
    assert Encryption(KEYS[0]).open(running.seal(b"y")) == b"y"
    with pytest.raises(SecretKeyError, match="written with another key"):
        load_secrets(tmp_path, {}).open(before)


def test_a_variable_may_name_several_keys(tmp_path: Path) -> None:
    found = load_secrets(tmp_path, {VARIABLE: f"{KEYS[0].decode()},{KEYS[1].decode()}"})
    assert found.keys == tuple(KEYS[:2])
    assert not found.looks_again
    with pytest.raises(SecretKeyError, match=f"{VARIABLE} is not a key"):
        load_secrets(tmp_path, {VARIABLE: f"{KEYS[0].decode()},hunter2"})
    (tmp_path / FILE).touch(0o600)
    with pytest.raises(SecretKeyError, match="is not a key"):
        load_secrets(tmp_path, {})


# ---- what is sealed anew ------------------------------------------------------------------------------


def sealed_values(bench: Any) -> list[bytes]:
    """All that looks sealed, in whatever column: the tokens of Fernet begin like this."""
    return [
        bytes(value)
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, LargeBinary)
        for value in bench.store.writer.execute(select(column)).scalars()
        if value is not None and bytes(value).startswith(b"gAAAA")
    ]


def fill(bench: Any) -> None:
    """One of everything that is sealed, and of some so many that they take several batches."""
    for number in range(5):
        bench.put_endpoint(f"e{number}", run=EndpointVersion("h", env={"TOKEN": "hidden"}))
        bench.submit(1.0, s3=S3Config("id", "hidden", "bucket", "https://s3.example"))
        bench.do(lambda conn, n=number: store.put_secret(conn, "default", f"s{n}", "hidden", 1.0))
    bench.do(store.webhook_secret)
    bench.do(_other_kinds)


def _other_kinds(conn: store.Conn) -> None:
    for column in SEALED:
        if column.table.name in ("templates", "registries", "pods"):
            row: dict[str, Any] = {
                one.name: "x" if one.type.python_type is str else 0
                for one in column.table.columns
                if not one.nullable
            }
            conn.execute(
                column.table.insert(), row | {"account": "default", column.name: conn.secrets.seal(b"{}")}
            )


@pytest.fixture
def bench(bench: Any) -> Iterator[Any]:
    """Sealed with its own key again at the end: the next test's is in the same database."""
    own = bench.store.writer.secrets
    yield bench
    with_keys(bench, *own.keys, *KEYS)
    reseal(bench.store.writer)
    bench.store.writer.secrets = own


def with_keys(bench: Any, *keys: bytes) -> None:
    bench.store.writer.secrets = Encryption(b"\n".join(keys))


def test_every_sealed_value_is_sealed_anew(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "BATCH", 2)
    fill(bench)
    conn = bench.store.writer
    old, number = conn.secrets.keys[0], len(sealed_values(bench))
    assert count_stale(conn) == 0
    assert {column.table.name for column in SEALED} >= {"pods", "registries", "templates", "inputs", "meta"}
    with_keys(bench, KEYS[0], old)
    assert count_stale(conn) == number
    assert reseal(conn) == number
    assert (count_stale(conn), reseal(conn)) == (0, 0)
    new = Encryption(KEYS[0])
    assert len([new.open(value) for value in sealed_values(bench)]) == number
    with_keys(bench, KEYS[0])
    assert bench.endpoint("e1").run.env == {"TOKEN": "hidden"}
    assert bench.do(store.read_secrets)["default"]["s4"] == "hidden"
    assert [one.s3 for one in bench.claim(2.0, bench.slot())] == [
        S3Config("id", "hidden", "bucket", "https://s3.example")
    ]


def _fail_at_the_third_commit(monkeypatch: pytest.MonkeyPatch, conn: store.Conn) -> None:
    commit, made = conn.commit, count()

    def fails() -> None:
        if next(made) == 2:
            conn.rollback()
            raise OSError("the power")
        commit()

    monkeypatch.setattr(conn, "commit", fails)


def test_a_rotation_that_was_cut_off_goes_on(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "BATCH", 2)
    fill(bench)
    conn, number = bench.store.writer, len(sealed_values(bench))
    with_keys(bench, KEYS[0], conn.secrets.keys[0])
    _fail_at_the_third_commit(monkeypatch, conn)
    with pytest.raises(OSError, match="the power"):
        reseal(conn)
    monkeypatch.undo()
    left = count_stale(conn)
    assert 0 < left < number
    assert reseal(conn) == left


def test_a_value_that_control_changed_meanwhile_stays(bench: Any) -> None:
    bench.do(lambda conn: store.put_secret(conn, "default", "hub", "old", 1.0))
    conn = bench.store.writer
    with_keys(bench, KEYS[0], conn.secrets.keys[0])
    (batch,) = [one for one in rotation._stale(conn) if one.column.table.name == "secrets"]
    bench.do(lambda conn: store.put_secret(conn, "default", "hub", "new", 2.0))
    assert bench.do(lambda conn: rotation._reseal(conn, batch.column, *batch.values[0])) == 0
    assert bench.do(store.read_secrets) == {"default": {"hub": "new"}}


def test_a_value_is_opened_while_another_thread_reads_the_new_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rotation may have sealed the value anew by then."""
    running = load_secrets(tmp_path, {})
    replace_key_file(tmp_path / FILE, [KEYS[0], *running.keys])
    anew = Encryption(KEYS[0]).seal(b"x")
    reads, begun, goes_on = secrets._read, threading.Event(), threading.Event()

    def slow(path: Path) -> bytes:
        monkeypatch.setattr(secrets, "_read", reads)  # the first to read is slow
        begun.set()
        assert goes_on.wait(60)
        return reads(path)

    monkeypatch.setattr(secrets, "_read", slow)
    first = threading.Thread(target=running.seal, args=(b"y",))
    first.start()
    assert begun.wait(60)
    try:
        assert running.open(anew) == b"x"
    finally:
        goes_on.set()
        first.join()
    assert running.open(anew) == b"x"


def test_what_was_read_before_its_key_was_dropped_is_opened(tmp_path: Path) -> None:
    running = load_secrets(tmp_path, {})
    before = running.seal(b"x")
    replace_key_file(tmp_path / FILE, [KEYS[0], *running.keys])
    running.seal(b"y")
    replace_key_file(tmp_path / FILE, [KEYS[0]])
    assert running.open(before) == b"x"
    assert running.keys == (KEYS[0],)
    assert Encryption(KEYS[0]).open(running.seal(b"z")) == b"z"
