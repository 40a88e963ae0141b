"""Who yields: one of a lower class that has saved, where it pays, not too often; otherwise nobody."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.queueing.priorities import Priority, outranks
from stoker.control.rules.queueing.yielding import (
    AGAIN_S,
    MOST_YIELDS,
    START_AGAIN_S,
    Asked,
    Nobody,
    Running,
    Waiting,
    decide,
)

seconds = st.integers(0, 2_000).map(float)
attempts = st.builds(
    Running,
    job=st.sampled_from("abcdef"),
    attempt=st.integers(1, 3),
    priority=st.sampled_from(Priority),
    ran_s=seconds,
    saves=st.integers(0, 20),
    asked=st.sampled_from([False, False, False, True]),
    yields=st.integers(0, MOST_YIELDS),
    yielded_ago_s=st.none() | seconds,
)
waits = st.builds(Waiting, st.just("w"), st.sampled_from(Priority), st.none() | seconds)
LONG = Running("long", 1, Priority.NORMAL, 600.0, 60)
URGENT = Waiting("short", Priority.URGENT)


@given(waits, st.lists(attempts, max_size=4), st.none() | seconds, st.lists(seconds, max_size=2))
def test_who_is_asked_may_be_asked_and_it_pays(
    waiting: Waiting, running: list[Running], job_s: float | None, starting: list[float]
) -> None:
    found = decide(waiting, running, job_s, starting)
    if isinstance(found, Nobody):
        assert found.why
        return
    one = found.attempt
    assert one in running
    assert outranks(waiting.priority, one.priority)
    assert one.saves > 0
    assert one.yields < MOST_YIELDS
    assert one.yielded_ago_s is None or one.yielded_ago_s >= AGAIN_S
    assert not any(other.asked for other in running)
    free_in_s = min([other.left_s(job_s) for other in running] + starting)
    assert free_in_s - one.save_in_s > START_AGAIN_S
    assert waiting.late_in_s is None or one.save_in_s < waiting.late_in_s
    assert found.why == f"a job of class {waiting.priority} waits"


@given(waits, st.lists(attempts, min_size=1, max_size=4), st.none() | seconds)
def test_nobody_yields_to_its_own_class_or_a_lower_one(
    waiting: Waiting, running: list[Running], job_s: float | None
) -> None:
    assume(not any(outranks(waiting.priority, one.priority) for one in running))
    assert decide(waiting, running, job_s) == Nobody("no job of a lower class runs")


@given(st.lists(attempts, max_size=4), seconds, seconds)
def test_a_worker_that_starts_asks_nobody_more(running: list[Running], job_s: float, ready_s: float) -> None:
    if isinstance(decide(URGENT, running, job_s), Nobody):
        assert isinstance(decide(URGENT, running, job_s, [ready_s]), Nobody)


def test_a_long_job_that_saves_yields() -> None:
    assert decide(URGENT, [LONG], None) == Asked(LONG, "a job of class urgent waits")
    low = replace(LONG, job="low", priority=Priority.LOW, saves=30)
    assert decide(URGENT, [LONG, low], None) == Asked(low, "a job of class urgent waits"), "the lowest first"
    assert decide(Waiting("short", Priority.NORMAL), [LONG, low], None).why == "a job of class normal waits"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"saves": 0}, "none of them has saved"),
        ({"yields": MOST_YIELDS}, "may yield again"),
        ({"yielded_ago_s": AGAIN_S - 1}, "may yield again"),
        ({"priority": Priority.URGENT}, "no job of a lower class runs"),
        ({"asked": True}, "has not yielded yet"),
        ({"ran_s": 4.0, "saves": 2}, "too soon for a yield to pay"),
    ],
)
def test_each_condition_keeps_it_running(change: dict[str, object], why: str) -> None:
    found = decide(URGENT, [replace(LONG, **change)], None)  # type: ignore[arg-type]
    assert isinstance(found, Nobody)
    assert why in found.why


def test_a_job_that_would_be_late_all_the_same_makes_nobody_yield() -> None:
    assert isinstance(decide(replace(URGENT, late_in_s=10.0), [LONG], None), Nobody)
    assert isinstance(decide(replace(URGENT, late_in_s=10.1), [LONG], None), Asked)


def test_a_slot_that_is_free_soon_is_waited_for() -> None:
    nearly_done = replace(LONG, job="other", ran_s=600.0, saves=0)
    assert isinstance(decide(URGENT, [LONG, nearly_done], 605.0), Nobody)
    assert isinstance(decide(URGENT, [LONG, nearly_done], 700.0), Asked)
    assert isinstance(decide(URGENT, [LONG], None, [3.0]), Nobody), "a worker will be ready by then"
