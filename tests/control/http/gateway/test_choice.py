"""Which worker a request gets: named examples, and what holds of any workers and any draw."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.gateway.choice import Affinity, Candidate, Chosen, Gone, Wait, choose, parse_affinity

WORKERS = st.lists(
    st.builds(Candidate, st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 9)),
    max_size=8,
    unique_by=lambda one: one.worker,
)
AFFINITIES = st.none() | st.builds(Affinity, st.sampled_from("abcdefgh"), st.booleans())


@given(WORKERS, AFFINITIES, st.integers(0, 2**32))
def test_only_ready_workers_are_chosen_and_some_is_where_one_is_ready(
    workers: list[Candidate], affinity: Affinity | None, seed: int
) -> None:
    found = choose(workers, affinity, Random(seed).randrange)
    ready = {one.worker for one in workers if one.ready}
    strict = affinity is not None and affinity.strict
    match found:
        case Chosen(worker):
            assert worker in ready
            assert not strict or worker == affinity.worker
        case Gone(worker):
            assert strict
            assert worker == affinity.worker not in {one.worker for one in workers}
        case Wait():
            assert not ready or (strict and affinity.worker not in ready)
    if affinity is not None and affinity.worker in ready:
        assert found == Chosen(affinity.worker, "the request names it")


@given(st.integers(0, 2**32))
def test_the_busiest_of_several_is_never_chosen(seed: int) -> None:
    workers = [Candidate("a", True, 3), Candidate("b", True, 1), Candidate("c", True, 2)]
    assert choose(workers, None, Random(seed).randrange).worker != "a"  # type: ignore[union-attr]


def test_each_pair_is_drawn_as_often_as_the_others() -> None:
    workers = [Candidate(name, True, n) for n, name in enumerate("abc")]
    rng = Random(1)
    chosen = Counter(choose(workers, None, rng.randrange).worker for _ in range(3000))  # type: ignore[union-attr]
    assert chosen["a"] == pytest.approx(2000, abs=150)
    assert chosen["b"] == pytest.approx(1000, abs=150)


def test_load_spreads_though_all_requests_come_at_once() -> None:
    rng, load = Random(1), dict.fromkeys("abcdefgh", 0)
    for _ in range(800):
        workers = [Candidate(name, True, count) for name, count in load.items()]
        load[choose(workers, None, rng.randrange).worker] += 1  # type: ignore[union-attr]
    assert max(load.values()) - min(load.values()) <= 5


@pytest.mark.parametrize(
    ("text", "affinity"),
    [
        ("w1", Affinity("w1", False)),
        (" w1 ", Affinity("w1", False)),
        ("strict w1", Affinity("w1", True)),
        ("STRICT  w1", Affinity("w1", True)),
        ("strict-resume w1", Affinity("w1", True)),
    ],
)
def test_what_a_request_may_say(text: str, affinity: Affinity) -> None:
    assert parse_affinity(text) == affinity


@pytest.mark.parametrize("text", ["", "strict", "strict-resume", "w1 w2", "strict w1 w2", "w\x00", "a" * 257])
def test_what_it_may_not(text: str) -> None:
    with pytest.raises(ValueError, match="a worker's id"):
        parse_affinity(text)
