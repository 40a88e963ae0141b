"""The viseme of each phoneme that espeak-ng names. Pure.

Its names are ASCII (after Kirshenbaum), one set for each language, alike in what the lips do: the letters
tell the group; marks of length and accent do not matter. Each half of a diphthong has its own.
"""

from __future__ import annotations

from typing import Final

_GROUPS: Final = {
    "pbm": "pbm",
    "fv": "fvP",
    "th": "TD",
    "tdnl": "tdnlL4",
    "kgh": "kgNxhHQGcCqXJK",
    "sh": "SZ",
    "sz": "sz",
    "r": "rR",
    "a": "aAV&0",
    "e": "eE@3",
    "i": "iIj",
    "o": "oO",
    "u": "uUwyYW",
}
_OF_SYMBOL: Final = {symbol: group for group, symbols in _GROUPS.items() for symbol in symbols}
_VOWELS: Final = frozenset("aeiou")


def visemes_of(phoneme: str) -> tuple[str, ...]:
    """Returns the viseme, two for a diphthong; "sil" for a pause and for a name without a letter."""
    if phoneme[:2] in ("tS", "dZ"):
        return ("sh",)
    if phoneme[:2] in ("ts", "dz"):
        return ("sz",)
    groups = [_OF_SYMBOL[symbol] for symbol in phoneme if symbol in _OF_SYMBOL]
    if not groups:
        return ("sil",)
    if len(groups) > 1 and groups[0] in _VOWELS and groups[1] in _VOWELS and groups[0] != groups[1]:
        return (groups[0], groups[1])
    return (groups[0],)
