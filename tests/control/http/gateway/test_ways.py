"""Which way to a node is tried first, and which after a failure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.nodes.ways import (
    AVOID_MAX_S,
    AVOID_S,
    WAYS,
    NodeGateway,
    Reach,
    Way,
    allowed,
    choose,
)

PORT = NodeGateway("10.0.0.7", 8443, "a-token-of-the-agent", b"certificate")
HERE = NodeGateway("127.0.0.1", 20_000, "a-token-of-the-agent")
ALL = Reach({"local": HERE, "direct": PORT}, tunnels=True, tunnel_open=True)


def order(reach: Reach, now: float = 0.0) -> list[str]:
    return [one.way for one in choose(reach, now)]


def test_they_are_tried_in_their_order_and_say_why() -> None:
    assert [(one.way, one.why) for one in choose(ALL, 0.0)] == [
        ("local", "on this host, 127.0.0.1:20000"),
        ("direct", "its gateway port, 10.0.0.7:8443"),
        ("tunnel", "control knows no port of the node"),
    ]
    assert order(Reach(tunnels=True)) == []
    assert Reach(tunnels=True).possible
    assert not Reach().possible


def test_one_that_failed_comes_last_for_a_while_and_for_longer_each_time() -> None:
    reach = allowed(ALL, ("direct", "tunnel")).failed("direct", "Connection refused", 0.0)
    assert [(one.way, one.why) for one in choose(reach, 1.0)] == [
        ("tunnel", "direct failed: Connection refused"),
        ("direct", "direct failed: Connection refused"),
    ]
    assert order(reach.failed("direct", "again", AVOID_S - 1), AVOID_S) == ["direct", "tunnel"]
    again = reach.failed("direct", "again", AVOID_S)
    assert order(again, 3 * AVOID_S - 1) == ["tunnel", "direct"]
    assert order(again, 3 * AVOID_S) == ["direct", "tunnel"]
    assert order(again.worked("direct"), AVOID_S) == ["direct", "tunnel"]
    assert again.worked("tunnel") is again


@given(
    st.sets(st.sampled_from(WAYS)),
    st.lists(st.tuples(st.sampled_from(WAYS), st.floats(0, 1e6))),
    st.booleans(),
)
def test_whatever_failed_every_way_that_is_there_is_tried(
    ways: set[Way], failures: list[tuple[Way, float]], open_: bool
) -> None:
    reach = allowed(Reach(ALL.ports, tunnels=True, tunnel_open=open_), ways)
    now = 0.0
    for way, at in sorted(failures, key=lambda one: one[1]):
        now = at
        reach = reach.failed(way, "it failed", at)
        assert reach.failures[way].until - at <= AVOID_MAX_S
    there = {way for way in ways if way != "tunnel"} | ({"tunnel"} if open_ and "tunnel" in ways else set())
    found = order(reach, now)
    assert (set(found), len(found)) == (there, len(there))
