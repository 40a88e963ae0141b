"""The table of the commonest nouns with what `flux-mini` draws for each, to be looked at by a person.

    python -m training.flux_mini.commonest package/dict > tests/models/text_to_image/mini/commonest_nouns.txt

The nouns are those of WordNet (see `nearest`) that mostly mean something that can be seen, and of those the
ones that were met most often in the texts whose senses its authors marked. A dash stands for nothing: the
word is not drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from stoker.models.text_to_image.mini import words
from stoker.models.text_to_image.mini.synonyms import SILENT
from training.flux_mini.nearest import PEOPLE, THINGS, Nouns

NUMBER: Final = 300
SEEN: Final = (*THINGS, PEOPLE, "08", "27")
"""The fields of things and people, and of bodies and substances."""


def commonest(nouns: Nouns) -> list[str]:
    """Returns the nouns, the commonest first."""
    found = dict[str, int]()
    for key, senses in nouns.senses.items():
        word, part = key.split("%")
        if part == "1" and word.isalpha() and len(word) > 2 and nouns.is_mostly_noun(word):
            seen = [(offset, met) for offset, met in senses if nouns.synsets[offset].field in SEEN]
            if seen and seen[0] == senses[0]:
                found[word] = sum(met for _, met in seen)
    return sorted(found, key=lambda word: (-found[word], word))[:NUMBER]


def drawn(word: str) -> str:
    """Returns what is drawn for a noun that a prompt names alone, or a dash."""
    reading = words.read(word)
    is_read = word not in SILENT and (word in words.KNOWN or reading.text != "star")
    return reading.text if is_read else "-"


def main() -> None:
    for word in commonest(Nouns(Path(sys.argv[1]))):
        print(word, drawn(word))


if __name__ == "__main__":
    main()
