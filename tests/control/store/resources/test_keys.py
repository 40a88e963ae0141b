"""API keys and join tokens."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control.rules.access import ALL, Access, Caller
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.store.resources import keys


def test_a_key_is_found_until_it_is_revoked(bench: Any) -> None:
    record, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    conn = bench.store.writer
    assert token.startswith(f"sk_{record.id}_")
    assert keys.find_caller(conn, token, 1.5) == (
        Caller("default", record.id, ALL, priority=Priority.URGENT),
        None,
    )
    assert keys.find_caller(conn, token[:-1] + "x", 1.5) is None
    assert keys.list_keys(conn) == (record,)
    assert bench.do(lambda conn: keys.revoke_key(conn, record.id, 2.0))
    assert not bench.do(lambda conn: keys.revoke_key(conn, record.id, 3.0))
    assert keys.find_caller(conn, token, 2.0) is None
    assert keys.list_keys(conn)[0].revoked_at == 2.0


def test_the_token_itself_is_not_stored(bench: Any) -> None:
    _, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    secret = token.rsplit("_", 1)[1]
    assert secret not in repr(bench.rows("SELECT * FROM keys"))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "sk",
        "sk__",
        "sk_x_y",
        "\udc80",
        "sk_\x00_y",
        "sk_\udc80_y",
        "sk_{id}_",
        "sk_{id}_00",
        "jt_{id}_{secret}",
    ],
)
def test_what_is_no_key_is_not_found(bench: Any, wrong: str) -> None:
    record, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    token = wrong.format(id=record.id, secret=token.rsplit("_", 1)[1])
    assert keys.find_caller(bench.store.writer, token, 1.0) is None


def test_hashes_are_compared_in_constant_time(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    compared: list[bytes] = []

    def equal(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return False

    monkeypatch.setattr(keys.hmac, "compare_digest", equal)
    assert keys.find_caller(bench.store.writer, token, 1.0) is None, "nothing else decides"
    assert [len(one) for one in compared] == [32]


def test_join_tokens_are_no_keys_and_may_run_out(bench: Any) -> None:
    record, token = bench.do(
        lambda conn: keys.create_join_token(conn, name="hosts", now=1.0, expires_at=10.0)
    )
    conn = bench.store.writer
    assert token.startswith("jt_")
    for disguised in (token, token.replace("jt_", "sk_")):
        assert keys.find_caller(conn, disguised, 1.0) is None
    assert keys.list_keys(conn) == ()
    assert keys.list_keys(conn, "join") == (record,)


def test_a_key_reports_what_it_may_do_until_it_expires(bench: Any) -> None:
    access = Access("restricted", "read", {"*": "read", "echo": "write"})
    record, token = bench.do(
        lambda conn: keys.create_key(conn, name="ci", now=1.0, access=access, expires_at=10.0)
    )
    conn = bench.store.writer
    assert keys.find_caller(conn, token, 9.9) == (Caller("default", record.id, access), 10.0)
    assert keys.find_caller(conn, token, 10.0) is None
    assert keys.list_keys(conn) == (record,)
    assert keys.get_key(conn, "default", record.id) == record
    assert keys.get_key(conn, "another", record.id) is None


def test_what_is_changed_is_the_own_account_s(bench: Any) -> None:
    record, _ = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    assert not bench.do(lambda conn: keys.change_key(conn, "another", record.id, {"name": "mine"}))
    assert bench.do(lambda conn: keys.change_key(conn, "default", record.id, {"name": "desk"}))
    assert keys.list_keys(bench.store.writer)[0].name == "desk"
