"""API keys and join tokens."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control import keys


def test_a_key_is_found_until_it_is_revoked(bench: Any) -> None:
    record, token = bench.do(lambda conn: keys.create_key(conn, name="laptop", now=1.0))
    conn = bench.store.writer
    assert token.startswith(f"sk_{record.id}_")
    assert keys.find_key(conn, token) == ("default", record.id)
    assert keys.list_keys(conn) == (record,)
    assert bench.do(lambda conn: keys.revoke_key(conn, record.id, 2.0))
    assert not bench.do(lambda conn: keys.revoke_key(conn, record.id, 3.0))
    assert keys.find_key(conn, token) is None
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
    assert keys.find_key(bench.store.writer, token) is None


def test_join_tokens_are_no_keys_and_may_run_out(bench: Any) -> None:
    record, token = bench.do(
        lambda conn: keys.create_join_token(conn, name="hosts", now=1.0, expires_at=10.0)
    )
    conn = bench.store.writer
    assert token.startswith("jt_")
    assert keys.accept_join(conn, token, 9.0) == "default"
    assert keys.accept_join(conn, token, 10.0) is None
    assert keys.find_key(conn, token) is None
    assert keys.list_keys(conn) == ()
    assert keys.list_keys(conn, "join") == (record,)
