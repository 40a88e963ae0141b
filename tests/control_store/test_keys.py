"""API keys and join tokens."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control import keys
from stoker.control.access import ALL, Access, Caller


def test_a_key_is_found_until_it_is_revoked(bench: Any) -> None:
    record, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    conn = bench.store.writer
    assert token.startswith(f"sk_{record.id}_")
    assert keys.find_caller(conn, token, 1.5) == (Caller("default", record.id, ALL), None)
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
    "wrong", ["", "sk", "sk__", "sk_x_y", "\udc80", "sk_{id}_", "sk_{id}_00", "jt_{id}_{secret}"]
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
    assert keys.refuses(conn, token, "n1", 9.0) is None
    assert "has expired" in (keys.refuses(conn, token, "n1", 10.0) or "")
    for disguised in (token, token.replace("jt_", "sk_")):
        assert keys.find_caller(conn, disguised, 1.0) is None
    assert keys.list_keys(conn) == ()
    assert keys.list_keys(conn, "join") == (record,)


def test_a_key_tells_what_it_may_do_until_it_expires(bench: Any) -> None:
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


def test_a_token_for_one_node_is_spent_by_the_first_that_joins(bench: Any) -> None:
    _, token = bench.do(
        lambda conn: keys.create_join_token(conn, name="host", now=1.0, uses=1, expires_at=9.0)
    )
    for node in ("n1", "n2"):
        bench.node(node, 2.0)
    bench.do(lambda conn: keys.join(conn, token, "n1", 3.0))
    with pytest.raises(keys.JoinRefused, match="used as often as it may be"):
        bench.do(lambda conn: keys.join(conn, token, "n2", 3.0))
    bench.do(lambda conn: keys.join(conn, token, "n1", 10.0))
    (record,) = keys.list_keys(bench.store.writer, "join")
    assert (record.uses_left, record.last_used_at) == (0, 10.0)


def test_a_revoked_token_lets_nobody_come_back(bench: Any) -> None:
    record, token = bench.do(lambda conn: keys.create_join_token(conn, name="hosts", now=1.0))
    bench.node("n1", 2.0)
    bench.do(lambda conn: keys.join(conn, token, "n1", 3.0))
    conn = bench.store.writer
    assert keys.joined(conn, token, "n1")
    assert not keys.joined(conn, token, "n2"), "it joined with no token"
    bench.do(lambda conn: keys.revoke_key(conn, record.id, 4.0))
    assert not keys.joined(conn, token, "n1")
    assert "revoked" in (keys.refuses(conn, token, "n1", 5.0) or "")


def test_a_node_that_takes_another_token_spends_it(bench: Any) -> None:
    make = keys.create_join_token
    _, first = bench.do(lambda conn: make(conn, name="first", now=1.0))
    _, second = bench.do(lambda conn: make(conn, name="second", now=2.0, uses=2))
    bench.node("n1", 2.0)
    for token in (first, second, second):
        bench.do(lambda conn, token=token: keys.join(conn, token, "n1", 3.0))
    assert [record.uses_left for record in keys.list_keys(bench.store.writer, "join")] == [None, 1]


def test_what_is_changed_is_the_own_account_s(bench: Any) -> None:
    record, _ = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    assert not bench.do(lambda conn: keys.change_key(conn, "another", record.id, {"name": "mine"}))
    assert bench.do(lambda conn: keys.change_key(conn, "default", record.id, {"name": "desk"}))
    assert keys.list_keys(bench.store.writer)[0].name == "desk"
