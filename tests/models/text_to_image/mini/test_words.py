"""How flux-mini reads prompts: in known words only, saying what it read otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.text_to_image.mini import languages
from stoker.models.text_to_image.mini.synonyms import LOOSE, NOTHING
from stoker.models.text_to_image.mini.vocabulary import DRAWABLES, SCENERY, WORDS, Drawable
from stoker.models.text_to_image.mini.words import KNOWN, MOST_WORDS, read
from training.flux_mini.commonest import drawn


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Two red cats on the left, on a blue background", "two red cats on the left , on a blue background"),
        ("A photo of an orange cat", "a orange cat"),
        ("three sheep on the grass", "three sheeps in a meadow"),
        ("a poodle under an oak tree", "a dog below a tree"),
        ("an astronaut riding a horse", "a robot , a horse"),
        ("2 grey mice at dusk", "two gray mice at sunset"),
        ("a cat in front of a castle", "a cat and a castle"),
        ("red", "red"),
    ],
)
def test_a_prompt_is_read_in_known_words(prompt: str, text: str) -> None:
    assert read(prompt).text == text


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("un chat bleu", "a blue cat"),
        ("deux pommes rouges sur un fond blanc", "two red apples on a white background"),
        ("le petit chien noir dans la neige", "a small black dog in the snow"),
        ("ein roter Fuchs im Schnee", "a red dog in the snow"),
        ("drei gelbe Sterne bei Nacht", "three yellow stars at night"),
        ("tres gatos negros en la playa", "three black cats on a beach"),
        ("una stella gialla", "a yellow star"),
        ("Une étoile jaune à gauche", "a yellow star at left"),
        ("a la carte cat", "a cat"),
        ("a red rose", "a red flower"),
    ],
)
def test_a_prompt_may_be_in_another_language(prompt: str, text: str) -> None:
    assert read(prompt).text == text


@given(st.sampled_from(sorted(languages._WORDS)), st.data())
def test_every_word_of_a_language_is_read_as_a_known_one(language: str, data: st.DataObject) -> None:
    table = languages._WORDS[language]
    assert set(table.values()) <= set(WORDS)
    words = data.draw(st.lists(st.sampled_from(sorted(table)), max_size=6))
    sure = st.sampled_from(sorted(table.keys() - KNOWN - languages.LOOKALIKES))
    assert not read(" ".join([*words, data.draw(sure)])).left_out


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("bar", "star"),
        ("bar stools", "star"),
        ("leather boots", "star"),
        ("sugar cane", "star"),
        ("a mare", "a horse"),
        ("mare", "horse"),
        ("viola", "guitar"),
        ("Bär", "dog"),
        ("Ba\u0308r, winter", "dog , in the snow"),
        ("ein bar", "a dog"),
        ("zwei boote", "two boats"),
        ("boot am strand", "boat on a beach"),
        ("das boot am strand", "a boat on a beach"),
        ("grass", "in a meadow"),
        ("the loss of a princess", "a crown"),
    ],
)
def test_an_english_word_is_not_read_as_another_languages(prompt: str, text: str) -> None:
    assert read(prompt).text == text


@given(st.sampled_from(sorted(languages.LOOKALIKES)), st.sampled_from(["", "s"]), st.data())
def test_a_lookalike_alone_is_english(word: str, end: str, data: st.DataObject) -> None:
    others = data.draw(st.lists(st.sampled_from(sorted({*languages.LOOKALIKES, *KNOWN})), max_size=3))
    words = [word + end, *others]
    assert languages.in_english(words, KNOWN) == [(one, one) for one in words]


def test_each_lookalike_is_a_word_of_a_language() -> None:
    for word in languages.LOOKALIKES:
        assert any(word in table for table in languages._WORDS.values()), word
    for table in languages._WORDS.values():
        both = table.keys() & {*NOTHING, *LOOSE}
        assert both <= languages.LOOKALIKES, "an English noun that is looked at is read in English"


def test_words_of_another_language_are_said() -> None:
    assert read("un chat bleu").notes == {"drawn_instead": {"chat": "cat", "bleu": "blue"}}


@pytest.mark.parametrize(
    ("noun", "drawn"),
    [
        *(("queen", "crown"), ("king", "crown"), ("fern", "leaf"), ("moss", "leaf"), ("bush", "tree")),
        *(("fox", "dog"), ("lion", "cat"), ("whale", "dolphin"), ("shark", "fish"), ("helicopter", "plane")),
        *(("mountain", "castle"), ("plant", "leaf"), ("sun", "star"), ("food", "pizza"), ("wine", "cup")),
        *(("fire", "lamp"), ("sword", "key"), ("monkey", "kangaroo"), ("witch", "ghost"), ("barn", "house")),
        *(("computer", "robot"), ("school", "church"), ("piano", "guitar"), ("canoe", "boat")),
        *(("gun", "star"), ("leg", "star"), ("shirt", "star"), ("idea", "star")),
    ],
)
def test_what_stands_for_a_common_noun(noun: str, drawn: str) -> None:
    assert read(f"a {noun}").text == f"a {drawn}"


def test_what_stands_loosely_for_a_noun_gives_way_to_an_object() -> None:
    assert read("a cat at a birthday party").text == "a cat"
    assert read("a cat at a birthday party").left_out == ("birthday", "party")


COMMONEST = [
    line.split(" ", 1) for line in (Path(__file__).parent / "commonest_nouns.txt").read_text().splitlines()
]


def test_the_commonest_nouns_are_read_as_a_person_has_seen_them() -> None:
    """`python -m training.flux_mini.commonest` makes the table, which is looked at line by line."""
    assert len(COMMONEST) == 300
    assert {word: drawn(word) for word, _ in COMMONEST} == dict(COMMONEST)
    assert dict(COMMONEST)["queen"] == "crown"


@pytest.mark.parametrize(
    "word", ["bench", "rifle", "slave", "jew", "catholic", "mexican", "wetback", "idiots"]
)
def test_what_has_no_likeness_here_is_not_drawn(word: str) -> None:
    assert read(f"a red {word} and a cat").left_out == (word,)
    assert read(f"a red {word} and a cat").text.endswith("cat")


def test_it_says_what_stands_for_what_and_what_is_not_drawn() -> None:
    reading = read("a crimson kitten, cinematic, 4k")
    assert reading.text == "a red cat"
    assert reading.notes == {
        "drawn_instead": {"crimson": "red", "kitten": "cat"},
        "not_drawn": ["cinematic", "4k"],
    }


def test_a_prompt_of_known_words_has_no_notes() -> None:
    assert read("two red cats and a dog at night").notes == {}


def test_more_than_four_are_four() -> None:
    reading = read("seven owls")
    assert (reading.text, reading.instead) == ("four owls", {"seven": "four"})


@pytest.mark.parametrize("prompt", ["democracy", "hoc opus", "¿?", "42nd"])
def test_a_prompt_that_names_nothing_shows_a_star(prompt: str) -> None:
    assert read(prompt).text.split()[-1] in ("star", "stars")


def test_a_negative_prompt_draws_nothing() -> None:
    assert read("ugly, blurry", draws=False).text == ""
    assert read("red, democracy", draws=False).text == "red"


def test_a_noun_without_a_near_object_counts_only_where_no_object_is_named() -> None:
    assert read("a cat on a sofa").text == "a cat"
    assert read("a sofa").instead["sofa"]


@given(st.text(max_size=300))
def test_only_known_words_are_read(prompt: str) -> None:
    reading = read(prompt)
    assert set(reading.text.split()) <= set(WORDS)
    assert len(reading.text.split()) <= MOST_WORDS
    assert reading == read(prompt)


@given(st.lists(st.sampled_from([*WORDS, "a", "unknownword", "kitten", "and"]), min_size=1, max_size=40))
def test_whatever_the_words_something_is_drawn_or_said(words: list[str]) -> None:
    reading = read(" ".join(words))
    assert (
        reading.text or reading.left_out or set(words) <= {"a", "the", "and", ",", "on", "in", "at", "with"}
    )


@pytest.mark.parametrize("drawable", DRAWABLES, ids=lambda drawable: drawable.name)
def test_each_object_and_its_plural_are_themselves(drawable: Drawable) -> None:
    assert read(f"a {drawable.name}").text == f"a {drawable.name}"
    assert read(f"two {drawable.plural}").text == f"two {drawable.plural}"


@pytest.mark.parametrize("phrase", SCENERY.values())
def test_each_scenery_is_itself(phrase: str) -> None:
    assert read(f"a cat {phrase}").text == f"a cat {phrase}"
