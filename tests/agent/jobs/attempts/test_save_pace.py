"""Properties of the pace of saves: a bound over any time, and none is kept for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.jobs.attempts.save_pace import BURST_BYTES, BYTES_PER_S, LEAST_BYTES, SavePace

OFFERS = st.lists(
    st.tuples(st.integers(0, 48 * 1024), st.floats(0, 5, allow_nan=False).map(lambda x: round(x, 3))),
    max_size=60,
)


@given(OFFERS)
def test_over_any_time_no_more_than_the_bound_is_reported(offers: list[tuple[int, float]]) -> None:
    pace, now, reported = SavePace(), 0.0, 0
    for size, wait_s in offers:
        now += wait_s
        pace, again_at = pace.offered(size, now)
        if again_at is None:
            reported += max(size, LEAST_BYTES)
        else:
            assert again_at > now
        assert reported <= BURST_BYTES + now * BYTES_PER_S + 1


@given(OFFERS)
def test_what_waits_is_reported_when_it_is_offered_again(offers: list[tuple[int, float]]) -> None:
    pace, now = SavePace(), 0.0
    for size, wait_s in offers:
        now += wait_s
        pace, again_at = pace.offered(size, now)
        if again_at is not None:
            assert again_at - now <= max(size, LEAST_BYTES) / BYTES_PER_S
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
