"""Nodes are avoided where workers fail, for a growing time, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.placement import NodeRoom
from stoker.control.scheduling.avoidance import (
    FIRST_S,
    KEPT_S,
    LONGEST_S,
    SEVERAL,
    Avoidance,
    Version,
)

ONE, NEXT = Version("e", 1), Version("e", 2)
ROOMS = [NodeRoom("bad", (), {}), NodeRoom("good", (), {}), NodeRoom("shut", (), {}, closed="is drained")]


def closed(avoidance: Avoidance, version: Version, now: float) -> dict[str, str]:
    return {room.node: room.closed for room in avoidance.closing(ROOMS, version, now) if room.closed}


def test_a_node_is_avoided_for_this_version_for_a_time() -> None:
    avoidance = Avoidance()
    avoidance.note_failed(ONE, "bad", "w1", "crash loop: no such file\nmore", 100.0)
    assert closed(avoidance, ONE, 100.0) == {
        "bad": "is avoided after 1 failed try: crash loop: no such file",
        "shut": "is drained",
    }
    assert closed(avoidance, NEXT, 100.0) == {"shut": "is drained"}
    assert closed(avoidance, ONE, 100.0 + FIRST_S) == {"shut": "is drained"}


def test_a_worker_counts_once_and_the_next_one_doubles_the_time() -> None:
    avoidance, now = Avoidance(), 0.0
    waits = []
    for n in range(9):
        for _ in range(3):
            avoidance.note_failed(ONE, "bad", f"w{n}", "x", now)
        [one] = avoidance.now_avoided(now)
        waits.append(one.until - now)
        now = one.until
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    avoidance.note_failed(ONE, "bad", "late", "x", now + KEPT_S + 1)
    [one] = avoidance.now_avoided(now + KEPT_S + 1)
    assert one.times == 1, "long ago is forgotten"


def test_a_ready_worker_or_an_operator_ends_it() -> None:
    for end in (lambda one: one.note_ready(ONE, "bad"), lambda one: one.note_resumed("bad")):
        avoidance = Avoidance()
        avoidance.note_failed(ONE, "bad", "w1", "x", 0.0)
        end(avoidance)
        assert closed(avoidance, ONE, 0.0) == {"shut": "is drained"}


def test_a_node_that_several_endpoints_avoid_takes_nothing_new() -> None:
    avoidance = Avoidance()
    for n in range(SEVERAL):
        assert closed(avoidance, Version("another", 1), 0.0) == {"shut": "is drained"}
        avoidance.note_failed(Version(f"e{n}", 1), "bad", f"w{n}", "x", 0.0)
    assert "workers of 3 endpoints do not start" in closed(avoidance, Version("another", 1), 0.0)["bad"]
    avoidance.keep(["e1", "e2"])
    assert avoidance.at_fault(0.0) == {}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from(["bad", "good"]), st.integers(0, 30), st.floats(0, 5000)
        ),
        max_size=60,
    )
)
def test_nothing_is_avoided_for_longer_than_the_longest_time(
    failures: list[tuple[int, str, int, float]],
) -> None:
    avoidance, now = Avoidance(), 0.0
    for endpoint, node, worker, passed in failures:
        now += passed
        avoidance.note_failed(Version(f"e{endpoint}", 1), node, f"w{worker}", "x", now)
        assert all(now < one.until <= now + LONGEST_S for one in avoidance.now_avoided(now))
    assert avoidance.now_avoided(now + LONGEST_S) == []
    assert {room.node for room in avoidance.closing(ROOMS, ONE, now + LONGEST_S) if room.closed} == {"shut"}
