"""The order of the queue: age raises a job, a class stands an hour before the next, and nothing starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.access import Caller
from stoker.control.rules.queueing.order import (
    IN_LINE,
    RETRY,
    Place,
    place,
    place_again,
    place_yielded,
)
from stoker.control.rules.queueing.priorities import STEP_S, Priority, outranks, priority_of

classes = st.sampled_from(Priority)
times = st.integers(0, 10**6).map(float)
BEST_FIRST = (Priority.URGENT, Priority.NORMAL, Priority.LOW)


def key(at: Place) -> tuple[int, float]:
    return at.lane, at.since


@given(classes, times, classes, times)
def test_a_job_is_overtaken_by_those_alone_that_came_within_the_step(
    first: Priority, came: float, second: Priority, later: float
) -> None:
    steps = BEST_FIRST.index(first) - BEST_FIRST.index(second)
    goes_first = key(place(second, later)) < key(place(first, came))
    assert goes_first == (later - came < steps * STEP_S)


@given(classes, times, st.lists(st.tuples(classes, st.integers(0, 3))))
def test_nothing_starves(mine: Priority, came: float, flood: list[tuple[Priority, int]]) -> None:
    """Whatever comes later than two steps stands behind it."""
    after = [place(other, came + 2 * STEP_S + more) for other, more in flood]
    assert all(key(place(mine, came)) <= key(other) for other in after)


@given(classes, times, st.integers(0, int(STEP_S)))
def test_the_place_of_a_new_job_is_reached_even_where_clocks_differ(
    mine: Priority, came: float, late: int
) -> None:
    """A place ahead of a clock reads as a back-off."""
    assert place(mine, came).since <= came - late


@given(st.booleans(), times, st.integers(0, 1_000), st.integers(-100, 100))
def test_what_is_tried_again_goes_first_unless_it_is_low(low: bool, came: float, ran: int, wait: int) -> None:
    now = came + ran
    found = place_again(low=low, created_at=came, not_before=now + wait, now=now)
    assert (found.since > now) == (wait > 0)
    if not low:
        assert found == Place(RETRY, now + wait)
    else:
        assert found == (Place(IN_LINE, now + wait) if wait > 0 else place(Priority.LOW, came))


@given(classes, times, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_job_that_yields_stands_behind_the_urgent_ones_and_before_its_class(
    mine: Priority, came: float, ran: int, waits: int
) -> None:
    now = came + ran
    found = place_yielded(mine, came, now)
    urgent = place(Priority.URGENT, now - waits)
    assert key(urgent) <= key(found)
    assert found.since <= now - STEP_S, "it does not back off"
    own = place(mine, came)
    assert found == own or (found == place(Priority.URGENT, now) and key(own) < key(found))


@given(classes)
def test_a_class_is_stored_as_two_marks(one: Priority) -> None:
    assert priority_of(low=one is Priority.LOW, urgent=one is Priority.URGENT) is one


@given(st.none() | classes, classes)
def test_a_key_grants_no_class_above_its_highest(asked: Priority | None, highest: Priority) -> None:
    found = Caller("a", priority=highest).granted(asked)
    assert found is None or not outranks(found, highest)
    if asked is None:
        assert found == max(Priority.NORMAL, highest, key=BEST_FIRST.index)
    else:
        assert found == (None if outranks(asked, highest) else asked)


def test_classes_are_ordered() -> None:
    assert [outranks(a, b) for a in BEST_FIRST for b in BEST_FIRST] == [
        a_at < b_at for a_at in range(3) for b_at in range(3)
    ]
