"""The stages of a worker's start: what counts for which, whatever a handler's class says of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker.setup.start_stages import NAME_MAX, OWN_MOST, StartStages


class Clock:
    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def test_a_stage_is_what_passed_since_the_last_one() -> None:
    clock = Clock()
    stages = StartStages(clock)
    clock.now_s += 0.25
    stages.end("import")
    stages.end("checks")
    clock.now_s += 2
    stages.end("setup", {"read": 1.5, "build": 0.25, "read ahead": 0.0001})
    assert list(stages.found_ms.items()) == [("import", 250), ("read", 1500), ("build", 250), ("setup", 250)]


@pytest.mark.parametrize(
    "said", [None, 3, "read", {}, {"read": -1.0}, {"read": float("nan")}, {3: 1.0}, {"": 1.0}]
)
def test_what_is_no_mapping_of_seconds_is_left_out(said: Any) -> None:
    clock = Clock()
    stages = StartStages(clock)
    clock.now_s += 1
    stages.end("setup", said)
    assert stages.found_ms == {"setup": 1000}


ANYTHING = st.one_of(st.floats(), st.integers(), st.text(), st.none())


@given(st.dictionaries(st.text() | st.integers(), ANYTHING, max_size=40))
def test_what_is_reported_fits_a_ready_frame(said: Any) -> None:
    stages = StartStages(Clock())
    stages.end("setup", said)
    assert len(stages.found_ms) <= OWN_MOST
    for name, milliseconds in stages.found_ms.items():
        assert 0 < len(name.encode()) <= NAME_MAX
        assert 0 < milliseconds <= 2**53 - 1
