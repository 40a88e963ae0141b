"""How many jobs at once: what a modifier may answer, and where a handler may have one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import worker
from stoker.worker import RegistrationError
from stoker.worker.frames import Frame
from stoker.worker.serving.slots import Slots
from stoker.worker.setup.registration import register

answers = st.one_of(st.integers(-5, 50), st.none(), st.floats(), st.booleans(), st.text(max_size=3))


@given(st.integers(1, 20), st.lists(answers, min_size=1, max_size=30))
def test_whatever_a_modifier_answers_the_number_stays_in_its_bounds(most: int, job_input: list[Any]) -> None:
    requests: list[int] = []
    reported: list[Frame] = []

    def modifier(current: int) -> object:
        requests.append(current)
        return job_input[len(requests) - 1]

    slots = Slots(most, modifier)
    expected, numbers = 1, []
    if most > 1:
        for answer in job_input:
            fits = isinstance(answer, int) and not isinstance(answer, bool) and answer >= 1
            expected = min(answer, most) if fits else expected
            numbers.append(expected)
        first = numbers[0]
        assert slots.now == first
        for _ in job_input[1:]:
            slots.modify(reported.append)
        changes = [now for before, now in pairwise(numbers) if now != before]
        assert [frame.fields["n"] for frame in reported] == changes
        assert requests == [1, *numbers[:-1]], "it is asked with the present number"
    assert slots.now == expected


def test_without_a_modifier_the_endpoint_decides() -> None:
    slots = Slots(7, None)
    slots.modify(lambda frame: pytest.fail(f"{frame} was sent"))
    assert slots.now == 7


def plain(job: Any) -> None: ...
async def coroutine(job: Any) -> None: ...


class Chooses:
    def run(self, job: Any) -> None: ...
    def concurrency_modifier(self, current: int) -> int:
        return current


def test_a_modifier_may_be_given_by_a_mark_or_by_the_class() -> None:
    marked = worker.handler(concurrency_modifier=int)(lambda job: None)
    assert register(marked).modifier is int
    assert register(Chooses).modifier is None


@pytest.mark.parametrize(
    ("modifier", "message"),
    [
        (5, "concurrency_modifier is 5, not a function"),
        (lambda: 5, "must take the current number, and nothing else"),
        (coroutine, "concurrency_modifier must not be async"),
    ],
)
def test_a_modifier_of_the_wrong_shape_is_refused(modifier: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        register(worker.handler(concurrency_modifier=modifier)(lambda job: None))
    held = staticmethod(modifier) if callable(modifier) else modifier
    own = type("Own", (), {"run": Chooses.run, "concurrency_modifier": held})
    with pytest.raises(RegistrationError, match=message):
        register(own)


def test_one_modifier_is_enough() -> None:
    marked = worker.handler(concurrency_modifier=int)(type("Twice", (Chooses,), {}))
    with pytest.raises(RegistrationError, match="marked with another; one of them must go"):
        register(marked)
