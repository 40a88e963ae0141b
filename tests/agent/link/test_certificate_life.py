"""When the certificate of a node is renewed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.link.certificate_life import Life, life_of


@given(st.integers(0, 2**32), st.integers(1, 2**30), st.integers(-(2**31), 2**33))
def test_a_certificate_is_renewed_after_a_quarter_of_its_life(begin: int, length: int, now: int) -> None:
    life = life_of(begin, begin + length, now)
    assert (life is Life.ENDED) == (now >= begin + length)
    if life is Life.DUE:
        assert now >= begin + length / 4
    if life is Life.GOOD:
        assert now < begin + length / 4


def test_three_quarters_are_left_for_a_host_that_is_off() -> None:
    assert [life_of(0.0, 100.0, at) for at in (-5.0, 24.9, 25.0, 99.9, 100.0)] == [
        Life.GOOD,
        Life.GOOD,
        Life.DUE,
        Life.DUE,
        Life.ENDED,
    ]
