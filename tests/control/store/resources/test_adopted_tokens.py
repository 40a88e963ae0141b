"""Tokens that an operator brings."""

from collections.abc import Iterator

import pytest

from stoker.control.nodes import joining
from stoker.control.rules.access import ALL, Caller
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.store import Store, open_store
from stoker.control.store.resources import keys


@pytest.fixture
def opened() -> Iterator[Store]:
    found = open_store(":memory:")
    yield found
    found.close()


@pytest.mark.parametrize("token", ["sk_0a1b_" + "0" * 32, "rpa_ABCDEF", "hunter2", "sk_no-second-half"])
def test_a_brought_key_is_known_from_then_on(opened: Store, token: str) -> None:
    conn = opened.writer
    assert keys.find_caller(conn, token, 1.0) is None
    assert keys.adopt(conn, "key", token, name="mine", now=1.0)
    assert keys.adopt(conn, "key", token, name="mine", now=2.0), "a second time changes nothing"
    (record,) = keys.list_keys(conn)
    assert keys.find_caller(conn, token, 1.0) == (
        Caller("default", record.id, ALL, priority=Priority.URGENT),
        None,
    )


def test_a_key_is_no_join_token(opened: Store) -> None:
    conn = opened.writer
    keys.adopt(conn, "key", "plain", name="mine", now=1.0)
    assert "not known" in (joining.why_refused(conn, "plain", "n1", 1.0) or "")
    keys.adopt(conn, "join", "plain", name="nodes", now=1.0)
    assert joining.why_refused(conn, "plain", "n1", 1.0) is None


def test_a_revoked_key_stays_revoked(opened: Store) -> None:
    conn = opened.writer
    keys.adopt(conn, "key", "rpa_ABCDEF", name="mine", now=1.0)
    (record,) = keys.list_keys(conn)
    keys.revoke_key(conn, record.id, 2.0)
    assert not keys.adopt(conn, "key", "rpa_ABCDEF", name="mine", now=3.0)
    assert keys.find_caller(conn, "rpa_ABCDEF", 3.0) is None


def test_the_id_of_another_key_cannot_be_taken(opened: Store) -> None:
    conn = opened.writer
    record, _ = keys.create_key(conn, name="first", now=1.0)
    assert not keys.adopt(conn, "key", f"sk_{record.id}_guessed", name="mine", now=2.0)
    assert keys.find_caller(conn, f"sk_{record.id}_guessed", 2.0) is None
