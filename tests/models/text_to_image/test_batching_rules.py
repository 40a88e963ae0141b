"""Which images are made together, and where batches pay: the pure rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.interface import ImageParameters, Lora
from stoker.models.text_to_image.batching import gain
from stoker.models.text_to_image.batching.gain import Batching, Times, best, decide, job_seconds
from stoker.models.text_to_image.batching.rules import (
    WAIT_S,
    Begin,
    Group,
    Wait,
    Waiting,
    group_of,
    next_batch,
    slots,
)

IMAGE = ImageParameters("a lighthouse", 256, 256, steps=4, seed=1, guidance=3.5)


def group(width: int = 256, steps: int = 4) -> Group:
    found = group_of(replace(IMAGE, width=width, steps=steps))
    assert found is not None
    return found


groups = st.sampled_from([None, group(), group(steps=5), group(512), group(1024)])
waitings = st.lists(st.tuples(groups, st.floats(0, 0.05)), max_size=12).map(
    lambda drawn: [Waiting(one, since) for one, since in sorted(drawn, key=lambda pair: pair[1])]
)
most_by_pixels = st.fixed_dictionaries({size * 256: st.integers(1, 5) for size in (256, 512, 1024)})


@given(waiting=waitings, now=st.floats(0.05, 0.1), most=most_by_pixels)
def test_the_oldest_is_in_the_next_batch_and_all_of_it_are_of_its_group(
    waiting: list[Waiting], now: float, most: dict[int, int]
) -> None:
    decision = next_batch(waiting, now, most.__getitem__)
    if isinstance(decision, Wait):
        if not waiting:
            assert decision.until_s is None
            return
        assert decision.until_s == waiting[0].since_s + WAIT_S
        assert now < decision.until_s
        return
    oldest, *others = decision.positions
    assert oldest == 0
    assert list(decision.positions) == sorted(set(decision.positions)), "in their order, each once"
    kind = waiting[0].group
    assert all(waiting[place].group == kind for place in others)
    room = 1 if kind is None else most[kind.pixels]
    assert len(decision.positions) <= room
    same = [place for place, one in enumerate(waiting) if one.group == kind]
    assert kind is None or len(decision.positions) == min(room, len(same)), "as many as fit"
    assert decision.reason


@given(waiting=waitings, most=most_by_pixels)
def test_everything_is_made_and_nothing_waits_twice_as_long(
    waiting: list[Waiting], most: dict[int, int]
) -> None:
    """With all of them there, each batch takes what is oldest, so there are at most as many as images."""
    left, now, batches = list(waiting), 0.0, 0
    while left:
        decision = next_batch(left, now, most.__getitem__)
        if isinstance(decision, Wait):
            assert decision.until_s is not None
            assert decision.until_s <= left[0].since_s + WAIT_S
            now = decision.until_s
            continue
        left = [one for place, one in enumerate(left) if place not in decision.positions]
        batches += 1
    assert batches <= len(waiting)


def test_what_is_alone_and_what_does_not_pay_begins_at_once() -> None:
    assert next_batch([Waiting(None, 5.0)], 5.0, lambda _: 8) == Begin((0,), "it is made alone")
    one = Waiting(group(), 5.0)
    assert next_batch([one], 5.0, lambda _: 1) == Begin((0,), "batches of this size do not pay")
    assert next_batch([one], 5.0, lambda _: 2) == Wait(5.0 + WAIT_S)
    assert next_batch([one], 5.0 + WAIT_S, lambda _: 2) == Begin((0,), "no other came in time")
    assert next_batch([one, Waiting(None, 5.0), one], 5.0, lambda _: 2) == Begin((0, 2), "it is full")


@pytest.mark.parametrize(
    "change",
    [
        {"width": 512},
        {"height": 512},
        {"steps": 5},
        {"guidance": 3.0},
        {"factor": 1.5},
        {"negative_prompt": "rocks"},
        {"scheduler": "unipc"},
        {"loras": (Lora("ink", 1.0),)},
        {"more": {"paper": "grey"}},
    ],
)
def test_what_differs_is_not_made_together(change: dict[str, Any]) -> None:
    assert group_of(replace(IMAGE, **change)) != group_of(IMAGE)


def test_texts_and_seeds_may_differ() -> None:
    assert group_of(replace(IMAGE, prompt="a fox", seed=2)) == group_of(IMAGE)
    rocks, rain = (replace(IMAGE, negative_prompt=text) for text in ("rocks", "rain"))
    assert group_of(rocks) == group_of(rain)
    assert group_of(replace(IMAGE, image=object())) is None  # type: ignore[arg-type]
    assert group_of(replace(IMAGE, references=(object(),))) is None  # type: ignore[arg-type]


@given(held=st.lists(groups, max_size=8), most=most_by_pixels)
def test_a_worker_takes_a_batch_and_no_more_of_what_does_not_fit(
    held: list[Group | None], most: dict[int, int]
) -> None:
    wanted = slots(held, most.__getitem__, largest=5)
    if not held:
        assert wanted == 5
    elif len(set(held)) == 1 and held[0] is not None:
        assert wanted == max(len(held), most[held[0].pixels])
    else:
        assert wanted == len(held)


@given(
    alone=st.floats(0.01, 100),
    seconds=st.dictionaries(st.sampled_from([2, 4, 8]), st.floats(0.01, 1000)),
)
def test_a_batch_that_is_chosen_ends_its_jobs_earlier_on_average(
    alone: float, seconds: dict[int, float]
) -> None:
    count = best(Times(512, alone, seconds))
    if count > 1:
        one_after_another = sum(alone * place for place in range(1, count + 1)) / count
        assert seconds[count] <= one_after_another * (1 + 1e-9)
        assert seconds[count] / count < alone
    else:
        assert all(took > (n + 1) / 2 * alone for n, took in seconds.items())


def test_the_decision_names_its_times() -> None:
    small = Times(256, 0.3, {2: 0.4, 4: 0.5, 8: 1.2})
    large = Times(512, 0.4, {2: 0.7})
    found = decide([small, large], 0.01)
    assert dict(found.most) == {256 * 256: 4}
    assert found.reason == (
        "4 at 256 x 256: 0.5 s, against 0.3 s for one;"
        " alone at 512 x 512 and above: 0.4 s for one image, 0.7 s for 2"
    )
    assert [found.most_at(side**2) for side in (256, 257, 512)] == [4, 1, 1]
    assert (found.largest, Batching("no").largest, Batching("no").most_at(1)) == (4, 1, 1)


def test_images_that_differ_too_much_are_made_alone() -> None:
    found = decide([Times(256, 1.0, {2: 1.0})], gain.LEVELS_MOST + 0.1)
    assert dict(found.most) == {}
    assert found.reason.startswith("images in a batch differ by 2.1 of 255 levels from those made alone")


def test_a_job_of_more_steps_is_told_from_a_short_one() -> None:
    """1 s before the first step, 2 s a step, 3 s after the last."""
    assert job_seconds([10.0, 13.0, 15.0, 17.0, 20.0], steps=28) == pytest.approx(1 + 28 * 2 + 3)
