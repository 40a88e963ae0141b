"""The names in a request that mean nothing here: a header of the answer lists them, or they are refused if
the caller asked for that. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

HEADER = b"stoker-ignored"
NAMES_MOST = 50
NAME_MOST = 100


def header_value(names: Iterable[str]) -> str:
    """Returns the names as the value of a header, with special characters quoted."""
    short = [quote(name[:NAME_MOST], safe="?.[]$ ") for name in names]
    more = f", and {len(short) - NAMES_MOST} more" if len(short) > NAMES_MOST else ""
    return ", ".join(short[:NAMES_MOST]) + more


def refusal(names: Iterable[str]) -> str:
    """Returns the sentence for fields that must be refused."""
    return "; ".join(f"{name[:NAME_MOST]} is not a known field" for name in [*names][:NAMES_MOST])


def strict(prefer: Iterable[str]) -> bool:
    """Returns whether a `Prefer` header has `handling=strict` (RFC 7240)."""
    preferences = ",".join(prefer).split(",")
    return any(one.partition(";")[0].replace(" ", "").lower() == "handling=strict" for one in preferences)
