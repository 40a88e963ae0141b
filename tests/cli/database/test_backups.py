"""`stoker backup` and `stoker restore`, from each database into each, and what is refused."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from stoker.cli.control.database import VARIABLE as DATABASE
from stoker.control import store
from stoker.control.store.database.secrets import FILE, VARIABLE
from stoker.control.store.tables.schema import SCHEMA_VERSION, metadata
from tests.cli.database.conftest import Operator
from tests.control.store.conftest import Bench, make_bench
from tests.control.store.database.past_tables import VERSIONS

BACKUP = "../stoker.backup"


def filled(opened: store.Store) -> Bench:
    """Jobs that ended, run and wait, a secret, a webhook, and values that are stored in two ways."""
    bench = make_bench(opened)
    ended = bench.running(10.0, webhook="https://receiver.example/hook")
    bench.report(11.0, bench.done(ended, output=b"\x00\xff" * 40))
    bench.running(12.0)
    for _ in range(120):
        bench.submit(13.0)
    bench.do(lambda conn: store.put_secret(conn, "default", "hub", "of-the-hub", 14.0))
    bench.do(store.webhook_secret)
    return bench


def rows(opened: store.Store) -> dict[str, list[Any]]:
    """Returns all rows but that of the lead, which each opening changes."""
    return {
        table.name: sorted(
            repr({n: bytes(v) if isinstance(v, memoryview) else v for n, v in row.items()})
            for row in opened.writer.execute(table.select()).mappings()
            if row.get("name") != "lead"
        )
        for table in metadata.sorted_tables
    }


def manifest(file: Path) -> dict[str, Any]:
    with tarfile.open(file) as tar:
        content = tar.extractfile("manifest.json")
        assert content is not None
        return dict(json.load(content))


def test_a_backup_holds_all_rows_of_one_moment(operators: Callable[[str], Operator]) -> None:
    """Restored into a new folder, they are the same, and control works on with them."""
    first = operators("first")
    with first.control() as opened:
        bench = filled(opened)
        before = rows(opened)
        said = first.works("backup", BACKUP, "--with-keys")
        bench.submit(20.0)
    assert "122 jobs as of" in said
    assert "key" not in said
    file = first.folder.root.parent.parent / "stoker.backup"
    assert file.stat().st_mode & 0o777 == 0o600
    found = manifest(file)
    assert (found["schema"], found["rows"]["jobs"]) == (SCHEMA_VERSION, 122)
    assert sorted(found["digests"]) == [FILE, "stoker.db"]
    second = operators("second")
    said = second.works("restore", BACKUP)
    assert "122 jobs" in said
    assert "revoke them anew" in said
    assert (second.folder.root / FILE).stat().st_mode & 0o777 == 0o600
    with second.control() as opened:
        assert rows(opened) == before
        assert opened.secrets.key_file() == (first.folder.root / FILE).read_bytes()
        again = Bench(opened, {"n1": 1}, drawn=1_000)
        again.submit(30.0)
        assert again.do(store.read_secrets) == {"default": {"hub": "of-the-hub"}}
    assert [path.name for path in second.folder.root.glob(".backup*")] == []


@pytest.mark.parametrize("operators", ["postgres"], indirect=True)
def test_a_backup_of_either_database_goes_into_the_other(
    operators: Callable[[str], Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = operators("first")
    with first.control() as opened:
        filled(opened)
        before = rows(opened)
    first.works("backup", "../of-postgres", "--with-keys")
    third = operators("third")
    url = third.url
    second = operators("second")
    monkeypatch.delenv(DATABASE)
    second.url = ""
    second.works("restore", "../of-postgres")
    second.works("backup", "../of-sqlite", "--with-keys")
    with second.control() as opened:
        assert rows(opened) == before
    monkeypatch.setenv(DATABASE, url)
    monkeypatch.chdir(third.folder.root.parent)
    third.works("restore", "../of-sqlite")
    with third.control() as opened:
        assert rows(opened) == before
        assert Bench(opened, {"n1": 1}, drawn=1_000).submit(30.0)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@pytest.mark.slow
def test_a_backup_of_an_earlier_version_is_upgraded_as_it_is_restored(
    operators: Callable[[str], Operator], version: int
) -> None:
    first = operators("first")
    past = first.put_tables_of(version)
    first.works("backup", BACKUP, "--with-keys")
    second = operators("second")
    second.works("restore", BACKUP)
    assert second.says("database", "status")["schemaFound"] == SCHEMA_VERSION
    with second.control() as opened:
        found = Bench(opened)
        assert found.rows("SELECT id, attempt FROM jobs ORDER BY seq") == [
            ("ended", 1),
            ("running", 1),
            ("waiting", 0),
        ]
        assert found.do(store.webhook_secret) == past.tokens["webhook_secret"]


# ---- the key ----------------------------------------------------------------------------------------


def test_without_its_key_a_backup_says_so_and_is_restored_with_it(
    operators: Callable[[str], Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = operators("first")
    first.open().close()
    key = first.folder.root / FILE
    assert f"keep the key file {key} elsewhere" in first.works("backup", BACKUP)
    second = operators("second")
    assert "the backup lacks the key to its secrets" in second.fails("restore", BACKUP)
    assert not (second.folder.root / FILE).exists()
    assert not second.folder.store.exists()
    (second.folder.root / FILE).write_text("B" * 43 + "=")
    (second.folder.root / FILE).chmod(0o600)
    assert "was written with another key" in second.fails("restore", BACKUP)
    (second.folder.root / FILE).unlink()
    monkeypatch.setenv(VARIABLE, key.read_text())
    second.works("restore", BACKUP)
    second.open().close()
    assert not (second.folder.root / FILE).exists()


def test_another_key_is_replaced_by_force_only(operators: Callable[[str], Operator]) -> None:
    first = operators("first")
    first.open().close()
    first.works("backup", BACKUP, "--with-keys")
    second = operators("second")
    (second.folder.root / FILE).write_text("B" * 43 + "=")
    (second.folder.root / FILE).chmod(0o600)
    assert "is not the key of this backup: replace it by --force" in second.fails("restore", BACKUP)
    second.works("restore", BACKUP, "--force")
    second.open().close()


# ---- refusals ---------------------------------------------------------------------------------------


def test_a_store_is_replaced_by_force_only_and_beside_no_control(operator: Operator) -> None:
    with operator.control() as opened:
        bench = filled(opened)
        operator.works("backup", BACKUP, "--with-keys")
        assert "exists already: give the backup another name" in operator.fails("backup", BACKUP)
        before = rows(opened)
        bench.submit(20.0)
        assert "a control runs on" in operator.fails("restore", BACKUP, "--force")
    assert "holds a store already" in operator.fails("restore", BACKUP)
    with operator.control() as opened:
        assert rows(opened) != before
    operator.works("restore", BACKUP, "--force")
    with operator.control() as opened:
        assert rows(opened) == before


@pytest.mark.parametrize("operators", ["sqlite"], indirect=True)
def test_a_wal_of_the_replaced_file_is_not_played_back(operator: Operator) -> None:
    """A control that was killed leaves one."""
    operator.open().close()
    operator.works("backup", BACKUP)
    wal = Path(f"{operator.folder.store}-wal")
    with operator.control() as opened:
        filled(opened)
        left, there = operator.folder.store.read_bytes(), wal.read_bytes()
    operator.folder.store.write_bytes(left)
    wal.write_bytes(there)
    operator.works("restore", BACKUP, "--force")
    with operator.control() as opened:
        assert rows(opened)["jobs"] == []


def repacked(operator: Operator, change: Callable[[dict[str, bytes]], object]) -> str:
    """The backup with something changed."""
    folder = operator.folder.root.parent.parent
    with tarfile.open(folder / "stoker.backup") as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    change(files)
    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    with tarfile.open(folder / "changed", "w") as tar:
        for name, content in files.items():
            (inner / "file").write_bytes(content)
            tar.add(inner / "file", name)
    return "../changed"


def with_manifest(**fields: Any) -> Callable[[dict[str, bytes]], object]:
    def change(files: dict[str, bytes]) -> None:
        files["manifest.json"] = json.dumps(json.loads(files["manifest.json"]) | fields).encode()

    return change


@pytest.mark.parametrize("operators", ["sqlite"], indirect=True)
def test_a_damaged_or_a_later_backup_is_refused_and_changes_nothing(
    operators: Callable[[str], Operator],
) -> None:
    first = operators("first")
    first.open().close()
    first.works("backup", BACKUP, "--with-keys")
    second = operators("second")
    for change, why in (
        (
            lambda files: files.update({"stoker.db": files["stoker.db"][:-1] + b"x"}),
            "does not have the digest",
        ),
        (lambda files: files.update({FILE: b"B" * 43 + b"="}), "its secret.key does not have the digest"),
        (lambda files: files.pop("stoker.db"), "only a part of one"),
        (lambda files: files.update({"manifest.json": b"{"}), "a manifest that cannot be read"),
        (with_manifest(more=1), "a manifest that cannot be read"),
        (with_manifest(digests={"../../x": ""}), "or names other files"),
        (with_manifest(format=2), "has format 2 of backups, and this Stoker reads 1"),
        (
            with_manifest(schema=SCHEMA_VERSION + 1),
            f"schema version {SCHEMA_VERSION + 1}, and this Stoker knows",
        ),
    ):
        assert why in second.fails("restore", repacked(first, change))
        assert not second.folder.store.exists()
        assert not (second.folder.root / FILE).exists()
    assert "there is no file nowhere" in second.fails("restore", "nowhere")
    (second.folder.root.parent / "no-backup").write_text("anything")
    assert "is not a backup" in second.fails("restore", "no-backup")
    (second.folder.root.parent / "half").write_bytes(Path(BACKUP).read_bytes()[:20_000])
    assert "not a backup, or only a part of one" in second.fails("restore", "half")
    assert list(second.folder.root.glob(".backup*")) == []


def test_a_database_of_a_later_version_is_not_backed_up(operator: Operator) -> None:
    with operator.control() as opened:
        later = text("UPDATE meta SET value = :to WHERE name = 'schema_version'")
        opened.writer.execute(later.bindparams(to=b"99"))
        assert "back it up by the Stoker that wrote it" in operator.fails("backup", BACKUP)
    assert not Path(BACKUP).exists()


@pytest.mark.parametrize("operators", ["sqlite"], indirect=True)
def test_a_backup_that_cannot_be_written_says_so(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.open().close()
    assert "there is no folder" in operator.fails("backup", "nowhere/stoker.backup")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stoker.cli.database.archive.os.fsync", full)
    assert "cannot be written to" in operator.fails("backup", BACKUP)
    monkeypatch.undo()
    assert [one.name for one in operator.folder.root.parent.parent.iterdir()] == ["here"]
    with closing(sqlite3.connect(operator.folder.store)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
