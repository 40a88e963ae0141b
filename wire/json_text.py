"""Checks that bytes are a JSON text that every parser accepts. Pure, and cheap: builds no value.

Stricter than Python's own reader: no NaN, no Infinity, no number out of a double's range, only UTF-8, and no
lone surrogate.
"""

from __future__ import annotations

import re

import msgspec
import orjson

_CHECK = msgspec.json.Decoder(msgspec.Raw)
_LARGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")


def flaw(text: bytes) -> str | None:
    """What is wrong with it, as the end of a sentence; None if nothing is."""
    try:
        _CHECK.decode(text)
        text.decode("utf-8")
        if _LARGE_EXPONENT.search(text):
            orjson.loads(text)
    except UnicodeDecodeError as error:
        return f"is no UTF-8 at byte {error.start}"
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        return f"is no JSON: {error}"
    return None
