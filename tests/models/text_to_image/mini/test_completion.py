"""What flux-mini adds to a prompt that leaves things open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.completion import complete, left_out, parsed, stands_out
from stoker.models.text_to_image.mini.vocabulary import BY_NAME, DRAWABLES, WORDS
from stoker.models.text_to_image.mini.words import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a red cat at night", "a red cat at night"),
        ("on the left a red cat at night", "a red cat on the left at night"),
        (
            "a red car and a blue house at night",
            "a red car on the left and a blue house on the right at night",
        ),
        (
            "a pink pig above a blue fish at night",
            "a pink pig at the top and a blue fish at the bottom at night",
        ),
        (
            "three red cats and a blue dog on the left at night",
            "two red cats on the right and a blue dog on the left at night",
        ),
        ("red cats at night", "two red cats at night"),
    ],
)
def test_what_is_named_is_kept(text: str, expected: str) -> None:
    assert complete(text, 0, most=2) == expected


def test_of_two_kinds_of_objects_the_second_is_left_out() -> None:
    assert complete("a red car and a blue house at night", 0) == "a red car at night"
    assert left_out("a red car and a blue house at night") == ["house"]
    assert left_out("two red cars at night") == []


def test_the_seed_chooses_what_is_left_open() -> None:
    found = {complete("a cat", seed) for seed in range(40)}
    assert len(found) > 10
    assert {parsed(one)[0][0].colour for one in found} == {"orange", "gray", "black", "white", "brown"}
    assert complete("a cat", 3) == complete("a cat", 3)


@pytest.mark.parametrize(
    ("text", "colours"),
    [
        ("a lighthouse in the snow", {"red"}),
        ("a dolphin in the sea", {"gray"}),
        ("a tree in a meadow", {"green"}),  # it has no other
        ("a cat on a black background", {"orange", "white", "gray", "brown"}),
    ],
)
def test_chance_chooses_a_colour_that_stands_out(text: str, colours: set[str]) -> None:
    assert {parsed(complete(text, seed))[0][0].colour for seed in range(40)} <= colours


@given(st.sampled_from([one.name for one in DRAWABLES]), st.integers(0, 100))
def test_of_what_is_open_both_fit_together(name: str, seed: int) -> None:
    [part], background = parsed(complete(f"a {name}", seed))
    assert stands_out(part.colour, background)
    assert part.colour in BY_NAME[name].colours


def test_a_colour_that_is_named_is_kept_even_if_it_hardly_stands_out() -> None:
    assert complete("a blue boat in the sea", 0) == "a blue boat in the sea"


@given(st.lists(st.sampled_from(WORDS), max_size=18), st.integers(0, 100))
def test_any_words_become_a_sentence_that_the_encoders_hold(some: list[str], seed: int) -> None:
    text = complete(read(" ".join(some)).text, seed)
    assert len(text.split()) < networks.TEXT_TOKENS
    assert parsed(text)[0]
    assert complete(text, seed + 1) == text
