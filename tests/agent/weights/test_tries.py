"""When weights are tried again, and what is said of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.weights.tries import after_failure, doing, failing


def test_waits_grow_and_have_an_end() -> None:
    waits, failures = [], 0
    for _ in range(8):
        following = after_failure(failures, definite=False, gained_bytes=0)
        failures = following.failures
        waits.append(following.wait_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_connection_that_brings_something_is_soon_tried_again() -> None:
    assert after_failure(6, definite=False, gained_bytes=1).wait_s == 1


def test_what_somebody_must_mend_is_tried_seldom() -> None:
    assert after_failure(0, definite=True, gained_bytes=5).wait_s == 60
    assert after_failure(9, definite=True, gained_bytes=0).wait_s == 600


@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 10))
def test_a_wait_is_never_shorter_than_a_second_nor_longer_than_ten_minutes(
    failures: int, definite: bool, gained: int
) -> None:
    following = after_failure(failures, definite=definite, gained_bytes=gained)
    assert 1 <= following.wait_s <= (600 if definite else 60)
    assert 1 <= following.failures <= failures + 1


def test_sentences() -> None:
    assert doing("gpu-1", "fetches", "flux-1-dev", 3_299_999_999, 23_802_932_552) == (
        "node gpu-1 fetches the weights flux-1-dev: 3.2 of 23.8 GB"
    )
    assert (
        doing("gpu-1", "verifies", "tiny", 5, 900) == "node gpu-1 verifies the weights tiny: 5 of 900 bytes"
    )
    assert failing("gpu-1", "ours", "the disk is full", 2.0) == (
        "node gpu-1 cannot get the weights ours: the disk is full; it tries again after 2 s"
    )
