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
        ("a red cat at night", ("a red cat at night",)),
        (
            "a red car and a blue house at night",
            ("a red car on the left at night", "a blue house on the right at night"),
        ),
        (
            "a pink pig above a blue fish at night",
            ("a pink pig at the top at night", "a blue fish at the bottom at night"),
        ),
        (
            "three red cats and a blue dog on the left at night",
            ("three red cats on the right at night", "a blue dog on the left at night"),
        ),
        ("red cats at night", ("two red cats at night",)),
    ],
)
def test_what_is_named_is_kept(text: str, expected: tuple[str, ...]) -> None:
    found = complete(text, 0)
    assert found.sentences == expected
    assert found.place == ("" if len(expected) == 1 else parsed(expected[0])[0][0].position)


def test_of_three_kinds_of_objects_the_third_is_left_out() -> None:
    text = "a red car and a blue house and a white dog at night"
    assert len(complete(text, 0).sentences) == 2
    assert left_out(text) == ["dog"]
    assert left_out("a red car and a blue house at night") == []


@given(st.integers(0, 100))
def test_two_kinds_are_drawn_before_one_background_in_two_halves(seed: int) -> None:
    found = complete("a car and two houses", seed)
    (first, background), (second, same) = (parsed(one) for one in found.sentences)
    assert background == same != ""
    assert (first[0].position, second[0].position, found.place) == ("left", "right", "left")
    assert (first[0].name, second[0].name, second[0].count) == ("car", "house", 2)


def only(text: str, seed: int) -> str:
    [sentence] = complete(text, seed).sentences
    return sentence


def test_the_seed_chooses_what_is_left_open() -> None:
    found = {only("a cat", seed) for seed in range(40)}
    assert len(found) > 10
    assert {parsed(one)[0][0].colour for one in found} == {"orange", "gray", "black", "white", "brown"}
    assert only("a cat", 3) == only("a cat", 3)


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
    assert {parsed(only(text, seed))[0][0].colour for seed in range(40)} <= colours


@given(st.sampled_from([one.name for one in DRAWABLES]), st.integers(0, 100))
def test_of_what_is_open_both_fit_together(name: str, seed: int) -> None:
    [part], background = parsed(only(f"a {name}", seed))
    assert stands_out(part.colour, background)
    assert part.colour in BY_NAME[name].colours


def test_a_colour_that_is_named_is_kept_even_if_it_hardly_stands_out() -> None:
    assert only("a blue boat in the sea", 0) == "a blue boat in the sea"


@given(st.lists(st.sampled_from(WORDS), max_size=18), st.integers(0, 100))
def test_any_words_become_a_sentence_that_the_encoders_hold(some: list[str], seed: int) -> None:
    for text in complete(read(" ".join(some)).text, seed).sentences:
        assert len(text.split()) < networks.TEXT_TOKENS
        assert parsed(text)[0]
        assert only(text, seed + 1) == text
