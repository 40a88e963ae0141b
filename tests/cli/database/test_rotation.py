"""`stoker database rotate-key`, beside a control that seals and opens, and what is refused."""

from __future__ import annotations

import json

import pytest
from cryptography.fernet import Fernet

from stoker.control import store
from stoker.control.store.database.secrets import FILE, VARIABLE, key_name
from stoker.control.store.tables.accounts import meta
from tests.cli.database.conftest import Operator
from tests.control.store.conftest import make_bench


def test_the_key_is_rotated_while_control_runs(operator: Operator) -> None:
    path = operator.folder.root / FILE
    with operator.control() as opened:
        bench = make_bench(opened)
        bench.do(lambda conn: store.put_secret(conn, "default", "hub", "of-the-hub", 1.0))
        (old,) = opened.secrets.keys
        said = operator.works("database", "rotate-key")
        new, *rest = path.read_bytes().split()
        assert rest == [old]
        assert f"3 values were sealed with key {key_name(new)} now; 0 are left" in said
        assert f"Key {key_name(old)} is needed by none of them: drop it by" in said
        assert operator.says("database", "status")["keys"] == [key_name(new), key_name(old)]
        bench.do(lambda conn: store.put_secret(conn, "default", "more", "after", 2.0))
        assert "0 values were sealed" in operator.works("database", "rotate-key")
        assert path.read_bytes().split() == [new, old], "it makes no third key"
        said = operator.works("database", "rotate-key", "--drop-old")
        assert f"Backups that were taken before need key {key_name(old)}: keep it" in said
        assert path.read_bytes().split() == [new]
        assert path.stat().st_mode & 0o777 == 0o600
        assert bench.do(store.read_secrets) == {"default": {"hub": "of-the-hub", "more": "after"}}
        assert opened.secrets.keys == (new,)
        assert "has one key only" in operator.fails("database", "rotate-key", "--drop-old")
    with operator.control() as opened:
        assert make_bench(opened).do(store.read_secrets)["default"]["hub"] == "of-the-hub"
    assert "values were sealed" in operator.works("database", "rotate-key"), "without a control, too"


def test_no_key_is_dropped_that_something_is_sealed_with(operator: Operator) -> None:
    """A control that sealed meanwhile, which no run of the command has seen: it is sealed anew first."""
    operator.open().close()
    operator.works("database", "rotate-key")
    new, old = (operator.folder.root / FILE).read_bytes().split()
    opened = operator.open()
    opened.writer.execute(
        meta.update().where(meta.c.name == "secret_check").values(value=Fernet(old).encrypt(b"stoker"))
    )
    opened.close()
    assert "1 values were sealed" in operator.works("database", "rotate-key", "--drop-old")
    assert (operator.folder.root / FILE).read_bytes().split() == [new]
    operator.open().close()


def test_keys_of_the_variable_are_rotated_by_restarts(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    monkeypatch.setenv(VARIABLE, old)
    with operator.control():
        assert f"{VARIABLE}=NEW,OLD" in operator.fails("database", "rotate-key")
        monkeypatch.setenv(VARIABLE, f"{new},{old}")
        assert "would not know the new key" in operator.fails("database", "rotate-key")
    with operator.control():
        assert "without key" in operator.works("database", "rotate-key")
    monkeypatch.setenv(VARIABLE, new)
    with operator.control():
        assert not (operator.folder.root / FILE).exists()


def test_a_control_that_would_not_read_the_new_key_is_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has the key by its variable, and a command by the file; or an old one."""
    operator.open().close()
    path = operator.folder.root / FILE
    before = path.read_bytes()
    monkeypatch.setenv(VARIABLE, before.decode())
    with operator.control():
        monkeypatch.delenv(VARIABLE)
        assert "would not know the new key" in operator.fails("database", "rotate-key")
        note = json.loads(operator.folder.control_note.read_text())
        operator.folder.control_note.write_text(json.dumps({"database": note["database"]}))
        assert "of an earlier version" in operator.fails("database", "rotate-key")
    assert path.read_bytes() == before
