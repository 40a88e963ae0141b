"""Properties of the pace of saves: a bound over any time, and none is kept for ever."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.agent.jobs.attempts import states
from stoker.agent.jobs.attempts.events import COMPLETED, Verdict
from stoker.agent.jobs.attempts.save_pace import BURST_BYTES, BYTES_PER_S, LEAST_BYTES, SavePace, is_of_use

OFFERS = st.lists(
    st.tuples(st.integers(0, 48 * 1024), st.floats(0, 0.5, allow_nan=False).map(lambda x: round(x, 3))),
    max_size=60,
)
CLOCKS = st.floats(0, 1e8) | st.integers(10**13, 10**14).map(lambda micro_s: micro_s / 1e6)
"""Times of clocks that have run for three years at most; drawn as floats, most would be short or round."""

PACES = st.builds(SavePace, left=st.floats(0, LEAST_BYTES), at=CLOCKS)


@given(OFFERS, PACES)
def test_over_any_time_no_more_than_the_bound_is_reported(
    offers: list[tuple[int, float]], pace: SavePace
) -> None:
    first, now, reported = pace, pace.at, 0
    for size, wait_s in offers:
        now += wait_s
        pace, again_at = pace.offered(size, now)
        if again_at is None:
            reported += max(size, LEAST_BYTES)
        else:
            assert again_at > now
        assert reported <= first.left + (now - first.at) * BYTES_PER_S + 2


@example([(0, 0.0)], SavePace(left=1000.1, at=87_204_831.9))
@given(OFFERS, PACES)
def test_what_waits_is_reported_when_it_is_offered_again(
    offers: list[tuple[int, float]], pace: SavePace
) -> None:
    now = pace.at
    for size, wait_s in offers:
        now += wait_s
        pace, again_at = pace.offered(size, now)
        if again_at is not None:
            assert now < again_at <= now + (max(size, LEAST_BYTES) + 2) / BYTES_PER_S
            now = again_at
            pace, again_at = pace.offered(size, now)
            assert again_at is None


def test_a_handler_that_saves_each_second_does_not_wait() -> None:
    pace = SavePace()
    for second in range(100):
        pace, again_at = pace.offered(30_000, float(second))
        assert again_at is None


def test_a_clock_that_stands_gives_nothing() -> None:
    pace, _ = SavePace(left=0.0, at=10.0).offered(1, 9.0)
    assert pace.left == 0.0


def test_a_long_rest_gives_as_much_as_can_be_reported_at_once() -> None:
    pace, _ = SavePace(left=0.0).offered(0, 1e6)
    assert pace.left == BURST_BYTES - LEAST_BYTES


CANCELLED, FAILED = Verdict("cancelled", "cancelled"), Verdict("failed", "no")
LOST, YIELDED = Verdict("lost", "it died", retryable=True), Verdict("yielded", "a drain", retryable=True)
USES = [
    (states.Running(0, 1, 2), True, True),
    (states.Uploading(1), True, True),
    (states.Flushing(1, COMPLETED), True, True),
    (states.Flushing(1, YIELDED), True, True),
    (states.Reporting(LOST), True, True),
    (states.Cancelling(1, LOST), True, True),
    (states.Cancelling(1, CANCELLED), False, False),
    (states.Cancelling(1, None), False, False),
    (states.Terminating(CANCELLED), False, False),
    (states.Terminating(None), False, False),
    (states.Reporting(FAILED), False, True),
    (states.Flushing(1, FAILED), False, True),
    (states.Over(), False, False),
]


@pytest.mark.parametrize(("state", "use", "use_in_case"), USES)
def test_the_last_save_is_of_use_where_the_job_or_a_replay_goes_on(
    state: states.State, use: bool, use_in_case: bool
) -> None:
    assert is_of_use(state, keeps_case=False) is use
    assert is_of_use(state, keeps_case=True) is use_in_case
