"""The scenes and captions that flux-mini is trained on."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.completion import can_be_seen, complete, parsed, sentence
from stoker.models.text_to_image.mini.vocabulary import COLOURS, DRAWABLES, WORDS
from stoker.models.text_to_image.mini.words import read
from training.flux_mini.captions import caption
from training.flux_mini.scenes import GRID, REGIONS, boxes, is_held_out, scene

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_no_scene_has_a_combination_that_is_held_out_or_cannot_be_seen(seed: int) -> None:
    made = scene(random.Random(seed))
    for group in made.groups:
        assert not is_held_out(group.drawable, group.colour, group.count)
        assert can_be_seen(group.colour, made.background)


def test_a_tenth_of_the_combinations_is_held_out() -> None:
    every = [
        (drawable, colour, count) for drawable in DRAWABLES for colour in COLOURS for count in range(1, 5)
    ]
    assert 0.08 < sum(is_held_out(*one) for one in every) / len(every) < 0.12


@given(SEEDS, st.integers(4, 24), st.integers(4, 24))
def test_objects_stand_apart_within_their_region(seed: int, columns: int, rows: int) -> None:
    rng, width, height = random.Random(seed), 64 * columns, 64 * rows
    for group in scene(rng).groups:
        left, top, right, bottom = REGIONS[group.position]
        found = boxes(group, width, height)
        assert len(found) == group.count
        for box in found:
            for begin in (box.x - box.side / 2, box.y - box.side / 2, box.side):
                steps = begin * GRID / min(width, height)
                assert abs(steps - round(steps)) < 1e-6
            assert left * width <= box.x - box.side / 2 + 1e-6
            assert box.x + box.side / 2 <= right * width + 1e-6
            assert top * height <= box.y - box.side / 2 + 1e-6
            assert box.y + box.side / 2 <= bottom * height + 1e-6
        for one, other in [(one, other) for one in found for other in found if one is not other]:
            apart = max(abs(one.x - other.x), abs(one.y - other.y))
            assert apart >= (one.side + other.side) / 2 - 1e-6


@given(SEEDS)
def test_captions_are_words_that_prompts_are_read_in(seed: int) -> None:
    text = caption(scene(random.Random(seed)))
    assert set(text.split()) <= set(WORDS)
    assert len(text.split()) < networks.TEXT_TOKENS
    assert read(text).notes == {}


@given(SEEDS, SEEDS)
def test_a_caption_is_complete(seed: int, other: int) -> None:
    text = caption(scene(random.Random(seed)))
    parts, background = parsed(text)
    assert complete(text, other).sentences == tuple(sentence([part], background) for part in parts)
    assert sentence(parts, background) == text
