"""Which node comes in with a join token or with a credential: the rule, and the store that it is about."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.nodes import joining
from stoker.control.store.resources import keys

# ---- the rule

TOKENS = st.builds(
    joining.Brought,
    st.sampled_from(["t1", "t2"]),
    st.sampled_from([1.0, 9.0]),
    st.sampled_from([None, 5.0, 50.0]),
    st.sampled_from([None, 0, 1]),
)
CREDENTIALS = st.builds(
    joining.Brought, st.sampled_from(["c1", "c2"]), st.just(2.0), node=st.sampled_from(["n1", "n2"])
)
KNOWN = st.none() | st.builds(
    joining.JoinedNode,
    st.sampled_from(["", "t1", "t2"]),
    st.sampled_from(["", "c1", "c2"]),
    st.booleans(),
    st.sampled_from([None, 4.0]),
)


@given(TOKENS | CREDENTIALS, KNOWN)
def test_an_id_belongs_to_its_credential(brought: joining.Brought, known: joining.JoinedNode | None) -> None:
    try:
        comes = joining.entry(brought, "n1", known, 10.0)
    except joining.JoinRefused:
        return
    settled = known is not None and known.join_key != "" and known.used and known.revoked_at is None
    if settled or brought.node is not None:
        assert comes is joining.JoinCase.BACK
        assert known is not None
        unused = not known.used and known.revoked_at is None and brought.node == "n1"
        assert brought.id == known.credential or unused
    if comes is joining.JoinCase.NEW:
        assert brought.uses_left != 0
        assert brought.expires_at is None or brought.expires_at > 10.0
        assert known is None or known.revoked_at is None or brought.created_at > known.revoked_at


def test_a_credential_of_another_node_is_named() -> None:
    theirs = joining.Brought("c2", 1.0, node="n2")
    for used in (True, False):
        with pytest.raises(joining.JoinRefused, match="is not node n1's: it is that of node n2"):
            joining.entry(theirs, "n1", joining.JoinedNode("t1", "c1", used), 2.0)
    earlier = joining.Brought("c0", 1.0, node="n1")
    with pytest.raises(joining.JoinRefused, match="an earlier one of this node"):
        joining.entry(earlier, "n1", joining.JoinedNode("t1", "c1", True), 2.0)


# ---- on the store


def token(bench: Any, now: float = 1.0, **bounds: Any) -> tuple[str, str]:
    record, made = bench.do(lambda conn: keys.create_join_token(conn, name="hosts", now=now, **bounds))
    return record.id, made


def comes(bench: Any, brought: str, node: str = "n1", now: float = 3.0) -> str | None:
    """What it gets for a join token; nothing for its credential."""
    does = joining.join if joining.is_join_token(brought) else joining.reconnect
    got: str | None = bench.do(lambda conn: does(conn, brought, node, now))
    return got


def test_a_token_for_one_node_is_spent_by_the_first_that_joins(bench: Any) -> None:
    _, once = token(bench, uses=1, expires_at=9.0)
    for node in ("n1", "n2"):
        bench.node(node, 2.0)
    assert comes(bench, once)
    with pytest.raises(joining.JoinRefused, match="used as often as it may be"):
        comes(bench, once, "n2")
    (record,) = keys.list_keys(bench.store.writer, "join")
    assert (record.uses_left, record.last_used_at) == (0, 3.0)


def test_a_token_that_has_expired_lets_nobody_in(bench: Any) -> None:
    _, made = token(bench, expires_at=9.0)
    bench.node("n1", 2.0)
    assert "has expired" in joining.why_refused(bench.store.writer, made, "n1", 9.0)
    assert joining.why_refused(bench.store.writer, made, "n1", 8.9) is None


def test_a_credential_that_did_not_arrive_is_replaced_and_spends_nothing(bench: Any) -> None:
    _, once = token(bench, uses=1)
    bench.node("n1", 2.0)
    lost, kept = comes(bench, once), comes(bench, once, now=4.0)
    assert lost is not None
    assert kept is not None
    assert lost != kept
    conn = bench.store.writer
    assert joining.why_refused(conn, lost, "n1", 5.0) is None, "perhaps it did arrive"
    assert comes(bench, kept, now=5.0) is None
    assert joining.unknown(conn, lost) == joining.OUT
    assert [record.id for record in keys.list_keys(conn, "node")] == [kept.split("_")[1]]


def test_of_two_credentials_that_nobody_used_the_first_to_come_stays(bench: Any) -> None:
    """The agent kept one, and control saw its other Hellos later. There is a limit to them."""
    _, once = token(bench, uses=1)
    bench.node("n1", 2.0)
    made = [comes(bench, once, now=3.0 + i) for i in range(joining.UNUSED_MOST + 1)]
    assert all(made)
    forgotten, kept, *others = (str(credential) for credential in made)
    conn = bench.store.writer
    assert joining.unknown(conn, forgotten) == joining.OUT
    assert comes(bench, kept, now=60.0) is None
    assert joining.is_credential_of(conn, kept, "n1")
    assert {joining.unknown(conn, other) for other in others} == {joining.OUT}


def test_no_credential_of_before_a_node_was_turned_out_is_good(bench: Any) -> None:
    _, old = token(bench)
    bench.node("n1", 2.0)
    first = comes(bench, old)
    assert first
    comes(bench, old, now=4.0)
    bench.do(lambda conn: joining.revoke(conn, "n1", 6.0))
    conn = bench.store.writer
    assert "an earlier one of this node" in joining.why_refused(conn, first, "n1", 6.5)
    assert not joining.is_credential_of(conn, first, "n1")
    _, new = token(bench, 7.0)
    comes(bench, new, now=8.0)
    assert joining.unknown(conn, first) == joining.OUT
    assert [record.revoked_at for record in keys.list_keys(conn, "node")] == [6.0, None]


def test_once_it_was_used_the_credential_alone_lets_the_node_in(bench: Any) -> None:
    _, made = token(bench)
    for node in ("n1", "n2"):
        bench.node(node, 2.0)
    credential = comes(bench, made)
    assert credential is not None
    conn = bench.store.writer
    assert not joining.is_credential_of(conn, made, "n1"), "it never does"
    comes(bench, credential)
    assert joining.is_credential_of(conn, credential, "n1")
    assert not joining.is_credential_of(conn, made, "n1")
    assert not joining.is_credential_of(conn, credential, "n2")
    with pytest.raises(joining.JoinRefused, match="belongs to the credential"):
        comes(bench, made)


def test_another_token_takes_no_nodes_id(bench: Any) -> None:
    """Nor before its credential was used, nor where the token that it joined with was revoked."""
    first, ours = token(bench)
    _, theirs = token(bench, 2.0)
    bench.node("n1", 2.0)
    comes(bench, ours)
    for _ in range(2):
        with pytest.raises(joining.JoinRefused, match="belongs to the credential"):
            comes(bench, theirs)
        bench.do(lambda conn: keys.revoke_key(conn, first, 3.5))


def test_a_node_outlives_its_join_token(bench: Any) -> None:
    first, made = token(bench)
    bench.node("n1", 2.0)
    credential = comes(bench, made)
    bench.do(lambda conn: keys.revoke_key(conn, first, 4.0))
    assert "revoked" in joining.why_refused(bench.store.writer, made, "n1", 5.0)
    assert credential is not None
    assert comes(bench, credential, now=5.0) is None


def test_a_node_that_was_turned_out_before_it_used_its_credential_is_out(bench: Any) -> None:
    _, made = token(bench)
    bench.node("n1", 2.0)
    comes(bench, made)
    bench.do(lambda conn: joining.revoke(conn, "n1", 6.0))
    assert not joining.is_credential_of(bench.store.writer, made, "n1")
    with pytest.raises(joining.JoinRefused, match="turned out after join token"):
        comes(bench, made, now=7.0)


def test_a_node_that_was_turned_out_comes_in_with_a_newer_token(bench: Any) -> None:
    _, old = token(bench)
    bench.node("n1", 2.0)
    credential = comes(bench, old)
    assert credential is not None
    comes(bench, credential)
    assert bench.do(lambda conn: joining.revoke(conn, "n1", 6.0))
    conn = bench.store.writer
    assert joining.revoked_nodes(conn) == {"n1"}
    assert joining.why_refused(conn, credential, "n1", 7.0) == joining.OUT
    assert not joining.is_credential_of(conn, old, "n1")
    with pytest.raises(joining.JoinRefused, match="turned out after join token"):
        comes(bench, old, now=7.0)
    _, new = token(bench, 6.5, uses=1)
    assert comes(bench, new, now=7.0)
    assert joining.revoked_nodes(conn) == frozenset()
    assert [record.revoked_at for record in keys.list_keys(conn, "node")] == [6.0, None]
    assert "used as often" in joining.why_refused(conn, new, "n9", 8.0)


def test_a_node_whose_certificate_has_ended_joins_again_with_its_credential_beside_a_token(
    bench: Any,
) -> None:
    """It keeps its id; without the credential, and with another node's, the id is not to be had."""
    _, many = token(bench)
    _, once = token(bench, uses=1)
    for node in ("n1", "n2"):
        bench.node(node, 2.0)
    ours, theirs = comes(bench, many), comes(bench, many, "n2")
    assert ours is not None
    assert theirs is not None
    comes(bench, ours)
    conn = bench.store.writer
    for proof in ("", theirs, "nk_1_2", once, "nk_\x00_2", "nk_" + "1" * 600):
        assert "belongs to the credential" in str(joining.why_refused(conn, once, "n1", 5.0, proof))
    assert joining.why_refused(conn, once, "n1", 5.0, ours) is None
    fresh = bench.do(lambda conn: joining.join(conn, once, "n1", 5.0, ours))
    assert comes(bench, fresh, now=6.0) is None
    assert not joining.is_credential_of(conn, ours, "n1"), "the newer one is the node's now"
    with pytest.raises(joining.JoinRefused, match="used as often"):
        bench.do(lambda conn: joining.join(conn, once, "n1", 7.0, fresh))
    bench.do(lambda conn: joining.revoke(conn, "n1", 8.0))
    assert "turned out" in str(joining.why_refused(conn, many, "n1", 9.0, fresh))
