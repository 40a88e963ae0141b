"""What an outcome shows of what its handler printed: the last lines, bounded, without known secrets.

Pure. With several attempts at once on a worker nobody can tell their lines apart: each shows all of its time.
Only the stock SDK of protocol workers says in a line of its own which job it is about.
A secret is known by the name of its variable in the endpoint's environment, from the attempt's own grants, or
because control says that it is one (`hidden`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from stoker.wire.messages import Grant

LINES_MAX = 100
BYTES_MAX = 16 * 1024
LINE_MAX = 2000
HIDDEN = "***"

_SECRET_NAME = re.compile(r"key|secret|token|passw|pwd|credential|auth", re.IGNORECASE)
_SECRET_MIN = 4
"""Shorter than this it hides nothing and would blot out half of the text."""


def secrets_of(
    env: Mapping[str, str], grants: Iterable[Grant | None] = (), hidden: Iterable[str] = ()
) -> tuple[str, ...]:
    """The longest first: one may be a part of another. Of one with several lines, each line."""
    values = [value for name, value in env.items() if _SECRET_NAME.search(name)]
    values += [grant.access_secret for grant in grants if grant is not None]
    values += hidden
    parts = {part.strip() for value in values for part in value.splitlines()}
    return tuple(sorted((part for part in parts if len(part) >= _SECRET_MIN), key=len, reverse=True))


def hide(lines: Iterable[str], secrets: Sequence[str]) -> tuple[str, ...]:
    if not secrets:
        return tuple(lines)
    known = re.compile("|".join(map(re.escape, secrets)))
    return tuple(known.sub(HIDDEN, line) for line in lines)


def job_of(line: str) -> str | None:
    """The job that a line of the stock SDK names: `{"requestId": ..., "message": ..., "level": ...}`."""
    if not line.startswith("{") or '"requestId"' not in line:
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return None
    job = said.get("requestId")
    return job if isinstance(job, str) and "message" in said else None


def cleaned(lines: Iterable[str], secrets: Sequence[str]) -> tuple[str, ...]:
    """As callers may see them. Secrets go before a cut could leave a part of one."""
    return tuple(line[:LINE_MAX] for line in hide(lines, secrets))


def shown(lines: Sequence[str], secrets: Sequence[str]) -> tuple[str, ...]:
    """As many of the last lines as fit."""
    kept: list[str] = []
    left = BYTES_MAX
    for cut in reversed(cleaned(lines[-LINES_MAX:], secrets)):
        left -= len(cut.encode("utf-8", "replace")) + 1
        if left < 0:
            break
        kept.append(cut)
    return tuple(reversed(kept))
