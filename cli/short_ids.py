"""The whole id for an id, a name or the unique beginning of an id. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from stoker.cli.errors import CliError

Known: TypeAlias = Iterable[tuple[str, str]]
"""Ids, each with its name or an empty string."""

LISTED = 5
"""How many ids a message lists."""


def resolve_id(typed: str, known: Known, kinds: str) -> str | None:
    """Returns the whole id, or None if nothing matches. Raises CliError if more than one matches.

    A whole id is preferred to a name, and a name to the beginning of an id. `kinds` is the plural for
    messages.
    """
    pairs = list(known)
    if any(typed == id_ for id_, _ in pairs):
        return typed
    named = [id_ for id_, name in pairs if name == typed and name]
    if len(named) > 1:
        raise CliError(f"{len(named)} {kinds} are called {typed}: name one by its id: {', '.join(named)}")
    begun = named or [id_ for id_, _ in pairs if typed and id_.startswith(typed)]
    if len(begun) > 1:
        more = ", …" if len(begun) > LISTED else ""
        raise CliError(
            f"{len(begun)} {kinds} have ids that begin with {typed}: {', '.join(begun[:LISTED])}{more}"
        )
    return begun[0] if begun else None
