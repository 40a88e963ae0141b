"""Prompts cleaned as Wan's authors clean them, since the text encoder was trained with cleaned prompts.

Mojibake is repaired and curly quotes become straight (`ftfy`), HTML entities, also doubly encoded ones,
become the characters that they name, and each run of white space becomes one space. This is for Wan only:
FLUX's encoders get the prompt unchanged.
"""

from __future__ import annotations

import html
from typing import Final

import ftfy  # not in the function: a worker without it must not become ready

MAX_CHARACTERS: Final = 32_768
"""The characters of a prompt that are used. The encoder reads 512 tokens, but the whole prompt would first be
cleaned and tokenized."""


def cleaned(prompt: str) -> str:
    mended: str = ftfy.fix_text(prompt[:MAX_CHARACTERS])
    return " ".join(html.unescape(html.unescape(mended)).split())
