"""The reading of a prompt in the words that `flux-mini` was trained on, and of what was read otherwise.

    "A crimson kitten, cinematic" ──> "a red cat"   drawn instead: crimson: red, kitten: cat
                                                    not drawn: cinematic

Pure, and the same for the same prompt. The table of nouns is made by `training.nearest`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stoker.models.text_to_image.mini.languages import accented, in_english, plain
from stoker.models.text_to_image.mini.synonyms import LOOSE, NOTHING, SILENT, SYNONYMS
from stoker.models.text_to_image.mini.vocabulary import (
    BY_NAME,
    COLOURS,
    COUNTS,
    DRAWABLES,
    FILLERS,
    SCENERY,
    WORDS,
)

MOST_WORDS: Final = 18
"""The encoders read 20 tokens, of which two mark the beginning and the end."""

_PLURALS: Final = {drawable.plural: drawable.name for drawable in DRAWABLES}

_ARTICLES: Final = frozenset(("a", "the"))
_JOINING: Final = frozenset((",", "and", "on", "in", "at", "with", "above", "below"))

KNOWN: Final = frozenset((*WORDS, *SYNONYMS, *SILENT))
"""The words that need no table of nouns."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of a prompt. `text`: known words, divided by spaces. `instead`: what stands for a word of
    the prompt. `left_out`: words that are not drawn."""

    text: str
    instead: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> dict[str, object]:
        """Returns what an output says of the reading; empty if every word was known."""
        changed = {"drawn_instead": dict(self.instead)} if self.instead else {}
        return changed | ({"not_drawn": list(self.left_out)} if self.left_out else {})


def singular(word: str) -> str:
    """Returns the singular of an English noun, by its ending."""
    if word in _PLURALS:
        return _PLURALS[word]
    for end, other in (
        ("ies", "y"),
        ("ves", "f"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("xes", "x"),
        ("sses", "ss"),
    ):
        if word.endswith(end) and len(word) > len(end) + 1:
            return word.removesuffix(end) + other
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


@functools.cache
def _nearest() -> dict[str, dict[str, str]]:
    """Tables of words: near and far."""
    found: dict[str, dict[str, str]] = json.loads(
        (Path(__file__).parent / "trained" / "nearest.json").read_bytes()
    )
    return {
        table: {word: name for name, some in listed.items() for word in some.split()}
        for table, listed in found.items()
    }


def read(prompt: str, draws: bool = True) -> Reading:
    """Returns the prompt in known words. A prompt that names nothing that can be drawn, even nearly, shows a
    star; unless it `draws` nothing, as a negative prompt, in which only near words count."""
    text, instead, left_out, far = list[str](), dict[str, str](), dict[str, None](), dict[str, str]()
    words = re.findall(r"[a-z0-9]+|,", plain(prompt).replace("in front of", "with"))
    for word, meant in in_english(words, KNOWN, accented(prompt)):
        found, is_near = _known(meant)
        if not found:
            if meant not in SILENT:
                left_out[word] = None
        elif not is_near:
            far[word] = found
            text.append(word)
        else:
            if not _is_the_same(word, found) and found not in FILLERS:
                instead[word] = found
            text.append(found)
    draws = draws and not any(_is_object(word) for word in text)
    chosen = next(iter(far), "") if draws else ""
    left_out |= dict.fromkeys(word for word in far if word != chosen)
    if chosen:
        instead[chosen] = far[chosen]
    elif draws and (left_out or not text):
        while text and text[-1] in _JOINING:
            text.pop()
        text.append("star")
        instead |= dict.fromkeys(list(left_out)[:1], "star")
        left_out = dict.fromkeys(list(left_out)[1:])
    kept = [far[word] if word == chosen else word for word in text if word == chosen or word not in far]
    return Reading(" ".join(_agreeing(_scenery(_tidy(kept)))[:MOST_WORDS]), instead, tuple(left_out))


def _known(word: str) -> tuple[str, bool]:
    """Returns the known word for a word, empty if there is none, and whether it is near."""
    if word in SYNONYMS or word in WORDS:
        return SYNONYMS.get(word, word), True
    one = singular(word)
    if one in BY_NAME or one in SYNONYMS:
        found = SYNONYMS.get(one, one)
        return (BY_NAME[found].plural if found in BY_NAME else found), True
    if NOTHING.intersection((word, one)):
        return "", False
    for table, is_near in ((LOOSE, False), (_nearest()["near"], True), (_nearest()["far"], False)):
        for form in (word, one):
            if drawn := table.get(form):
                return (drawn if form == word else BY_NAME[drawn].plural), is_near
    return (COUNTS[-1], True) if word.isdecimal() else ("", False)


def _is_object(word: str) -> bool:
    return word in BY_NAME or word in _PLURALS


def _is_the_same(word: str, found: str) -> bool:
    """Returns whether one word is only another form or spelling of the other."""
    same = {"an": "a", "of": "and", "grey": "gray", "1": "one", "2": "two", "3": "three", "4": "four"}
    return found in (word, same.get(word)) or _PLURALS.get(found, found) == singular(word)


def _tidy(words: list[str]) -> list[str]:
    """Joins objects as captions join them, and drops articles, prepositions and commas that join nothing any
    more."""
    found = list[str]()
    for word in reversed(words):
        following = found[-1] if found else ""
        if word in _ARTICLES:
            keep = following not in ("", *_JOINING)
        elif word in _JOINING:
            keep = following not in ("", *_JOINING) or (word in ("and", ",") and following in ("on", "at"))
        else:
            keep = word != following
            if _is_object(word) and (following in _ARTICLES or following in COUNTS):
                found.append(",")
        if keep:
            found.append(_joint(word, found) if word in _JOINING else word)
    found.reverse()
    while found and found[0] in (",", "and", "with", "above", "below"):
        found.pop(0)
    return found


def _joint(word: str, after: Sequence[str]) -> str:
    """Returns what captions say for a preposition before an object; `after` is what follows, from its end."""
    for following in reversed(after):
        if _is_object(following):
            return {"on": "above"}.get(word, "and" if word in ("in", "at", "with") else word)
        if following not in _ARTICLES and following not in COUNTS and following not in COLOURS:
            break
    return word


def _scenery(words: list[str]) -> list[str]:
    """Names each scenery as captions do: "in a meadow" for "on the meadow"."""
    found = list[str]()
    for word in words:
        if word in SCENERY:
            while found and found[-1] in ("in", "on", "at", "a", "the", "with"):
                found.pop()
            found += SCENERY[word].split()
        else:
            found.append(word)
    return found


def _agreeing(words: list[str]) -> list[str]:
    """Puts each object in the plural after two, three or four, and in the singular after one."""
    found, count = list[str](), ""
    for word in words:
        if word in COUNTS or word == "a":
            count = word
        name = _PLURALS.get(word, word)
        if name in BY_NAME and count:
            found.append(BY_NAME[name].plural if count in COUNTS[1:] else name)
            count = ""
        else:
            found.append(word)
    return found
