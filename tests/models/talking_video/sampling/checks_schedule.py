"""What must hold of the sampler's numbers. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.models.talking_video.network import reference
from tests.models.talking_video.sampling.drawn import drawn

STEPS, SHIFTS = st.integers(1, 100), st.floats(0.1, 20.0)
SCALES = st.one_of(st.just(1.0), st.floats(0.0, 9.0))
CONDITIONS = {"all": (True, True), "audio": (False, True), "text": (True, False), "nothing": (False, False)}


@drawn(STEPS, SHIFTS)
def levels_fall_from_one_to_nothing(m: Any, steps: int, shift: float) -> None:
    found = m.levels(steps, shift)
    assert len(found) == steps + 1
    assert abs(found[0] - 1.0) < 1e-12
    assert found[-1] == 0.0
    assert all(later < now for now, later in pairwise(found))


@drawn(STEPS, SHIFTS)
def they_are_the_papers(m: Any, steps: int, shift: float) -> None:
    for ours, theirs in zip(m.levels(steps, shift), reference.levels(steps, shift), strict=True):
        assert abs(ours - theirs) < 1e-12


@drawn(SCALES, SCALES, st.tuples(*[st.floats(-5, 5)] * 4))
def guidance_is_the_papers(m: Any, text: float, audio: float, values: Any) -> None:
    """And runs the forwards that it names, in order, and no other."""
    guidance = m.Guidance(text, audio)
    answers, called = dict(zip(CONDITIONS, values, strict=True)), []

    def velocity(forward: Any) -> float:
        called.append(forward)
        return answers[forward]

    found = m.combine(guidance, velocity)
    by_condition = {condition: answers[name] for name, condition in CONDITIONS.items()}
    wanted, runs = reference.guided(lambda *condition: by_condition[condition], text, audio)
    assert abs(found - wanted) < 1e-9
    assert tuple(called) == m.forwards(guidance)
    assert len(called) == runs


def a_step_takes_one_two_or_three_forwards(m: Any) -> None:
    assert [len(m.forwards(m.Guidance(*scales))) for scales in ((5, 4), (5, 1), (1, 2), (1, 1))] == [
        3,
        3,
        2,
        1,
    ]


def no_step_is_refused(m: Any) -> None:
    try:
        m.levels(0, 7.0)
    except ValueError:
        return
    raise AssertionError("no steps were taken")


ALL = [
    levels_fall_from_one_to_nothing,
    they_are_the_papers,
    guidance_is_the_papers,
    a_step_takes_one_two_or_three_forwards,
    no_step_is_refused,
]

MUTANTS = [
    ("another first time", "first, last = 1.0, 0.001", "first, last = 1.0, 0.0"),
    ("one spacing too many", "(first - last) / (steps - 1)", "(first - last) / steps"),
    ("shifted the other way", "shift * t / (1.0 + (shift - 1.0) * t)", "t / (shift - (shift - 1.0) * t)"),
    (
        "scales swapped",
        "guidance.text * (full - audio) + guidance.audio *",
        "guidance.audio * (full - audio) + guidance.text *",
    ),
    (
        "guided away from the voice",
        "silent + guidance.audio * (full - silent)",
        "full + guidance.audio * (full - silent)",
    ),
    ("text scale only asked of two", "if guidance.text != 1.0:", "if guidance.text > 1.0:"),
]
