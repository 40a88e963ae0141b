"""Opening the store: versions, keys, file modes; and endpoints, whose secrets must not lie open."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from stoker.control import store
from stoker.control.errors import Unavailable
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import EndpointVersion
from stoker.control.store.database.commits import run_reads
from stoker.control.store.database.secrets import (
    FILE,
    VARIABLE,
    Encryption,
    SecretKeyError,
    load_secrets,
    random_secrets,
)
from stoker.control.store.tables.schema import SCHEMA_VERSION, metadata
from stoker.wire.messages import Price


def test_a_store_is_found_again(tmp_path: Path) -> None:
    for _ in range(2):
        opened = store.open_store(tmp_path / "stoker.db")
        assert opened.writer.raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert opened.writer.raw.execute("PRAGMA synchronous").fetchone() == (2,)
        assert opened.writer.raw.execute("PRAGMA foreign_keys").fetchone() == (1,)
        opened.close()
    assert (tmp_path / "stoker.db").stat().st_mode & 0o777 == 0o600


def test_another_schema_version_is_refused_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "stoker.db"
    store.open_store(path).close()
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE meta SET value = ? WHERE name LIKE 'schema_%'", (b"99",))
    conn.close()
    with pytest.raises(store.StoreError, match=f"schema version 99.*version {SCHEMA_VERSION}.*--data-dir"):
        store.open_store(path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stoker.db"
    path.write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(store.StoreError, match="cannot be opened"):
        store.open_store(path)
    other = tmp_path / "other.db"
    conn = sqlite3.connect(other)
    conn.execute("CREATE TABLE things (x)")
    conn.close()
    with pytest.raises(store.StoreError, match="not Stoker's"):
        store.open_store(other)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_tables_are_strict(bench: Any) -> None:
    made = bench.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    assert [name for name, sql in made if "STRICT" not in sql] == []


# ---- secrets ----------------------------------------------------------------------------------------


def test_the_key_file_is_made_once_and_is_the_owners_only(tmp_path: Path) -> None:
    first = load_secrets(tmp_path, {})
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert load_secrets(tmp_path, {}).open(first.seal(b"x")) == b"x"


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    load_secrets(tmp_path, {})
    os.chmod(tmp_path / FILE, 0o640)
    with pytest.raises(SecretKeyError, match=r"mode 0640.*chmod 600"):
        load_secrets(tmp_path, {})


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    key = "A" * 43 + "="
    sealed = Encryption(key).seal(b"x")
    assert load_secrets(tmp_path, {VARIABLE: key}).open(sealed) == b"x"
    assert not (tmp_path / FILE).exists()
    with pytest.raises(SecretKeyError, match=f"{VARIABLE} is not a key"):
        load_secrets(tmp_path, {VARIABLE: "hunter2"})


def test_the_wrong_key_is_reported_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "stoker.db"
    store.open_store(path, secrets=random_secrets()).close()
    with pytest.raises(SecretKeyError, match="written with another key"):
        store.open_store(path, secrets=random_secrets())


def test_no_secret_lies_open(bench: Any, database: str, tmp_path: Path) -> None:
    s3 = S3Config("id-of-bucket", "hidden-s3-secret", "bucket", "https://s3.example")
    bench.put_endpoint("env", run=EndpointVersion("h", env={"TOKEN": "hidden-env-secret"}))
    claimed = bench.running(10.0, s3=s3)
    bench.report(11.0, bench.done(claimed))
    assert "hidden" not in repr(claimed)
    for table in metadata.tables:
        assert "hidden" not in repr(bench.rows(f"SELECT * FROM {table}")), table
    if database == "sqlite":
        bench.rows("PRAGMA wal_checkpoint")
        for file in (tmp_path / "data").iterdir():
            assert b"hidden" not in file.read_bytes(), file.name
    found = bench.endpoint("env")
    assert found.run.env == {"TOKEN": "hidden-env-secret"}
    assert [row for (row,) in bench.rows("SELECT s3 FROM inputs") if row is not None]
    bench.expire(1e9)
    assert bench.rows("SELECT s3 FROM inputs") == [], "it goes with its job"


# ---- endpoints --------------------------------------------------------------------------------------


def test_a_version_is_new_only_when_what_runs_has_changed(bench: Any) -> None:
    run = EndpointVersion("h", {"A": "1"}, 2, {"type": "object"}, (Price("output_pixel", 20),))
    assert bench.put_endpoint("e", run=run).version == 1
    assert bench.put_endpoint("e", run=run, workers_max=9).version == 1
    assert bench.endpoint("e").workers_max == 9
    assert bench.put_endpoint("e", run=EndpointVersion("h2")).version == 2
    assert bench.put_endpoint("e", run=run).version == 3
    found = bench.endpoint("e")
    assert found.run == run
    assert json.dumps(found.run.schema) == '{"type": "object"}'


def test_a_removed_endpoint_takes_nothing_until_it_is_put_again(bench: Any) -> None:
    assert bench.do(lambda conn: store.remove_endpoint(conn, "echo", 1.0))
    assert not bench.do(lambda conn: store.remove_endpoint(conn, "echo", 2.0))
    conn = bench.store.writer
    assert store.list_endpoints(conn) == ()
    assert bench.put_endpoint().version == 1
    assert [one.id for one in store.list_endpoints(conn)] == ["echo"]


def test_a_key_that_could_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SecretKeyError, match="cannot be written: No space left on device"):
        load_secrets(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    first = load_secrets(tmp_path, {})
    assert load_secrets(tmp_path, {}).open(first.seal(b"x")) == b"x"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_file_that_was_damaged_or_replaced_in_place_is_down_with_a_sentence(tmp_path: Path) -> None:
    opened = store.open_store(tmp_path / "stoker.db")
    assert opened.database.lost() is None
    reader = opened.reader()
    opened.writer.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (tmp_path / "stoker.db").write_bytes(b"another file" * 10_000)
    ((_, error),) = run_reads(reader, [lambda conn: conn.execute(text("SELECT * FROM jobs")).all()])
    assert isinstance(error, Unavailable)
    assert "the database file" in str(error)
    assert "replaced" in str(error)
    opened.close()
