"""The hot statements of statements.sql, with the guards that control.job decides."""

from __future__ import annotations

import re
from importlib.resources import files

from stoker.control.job import MOVES

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_GUARD = re.compile(r"\{from (\w+)\}")


def guard(move: str) -> str:
    """The condition under which `move` may be made. One state reads `=`, as a partial index wants it."""
    states = sorted(MOVES[move].sources)
    if len(states) == 1:
        return f"state = '{states[0]}'"
    return "state IN (" + ", ".join(f"'{state}'" for state in states) + ")"


def _load() -> dict[str, str]:
    whole = files("stoker.control").joinpath("statements.sql").read_text(encoding="utf-8")
    _, *pairs = _NAME.split(whole)
    return {
        name: _GUARD.sub(lambda found: guard(found[1]), body).strip()
        for name, body in zip(pairs[::2], pairs[1::2], strict=True)
    }


STATEMENTS = _load()
