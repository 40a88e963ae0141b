"""The log that an outcome shows of its handler: the last lines, bounded, without known secrets.

Pure. The lines of several attempts at once on a worker cannot be attributed: each shows all lines of its
time. Only the stock SDK of protocol workers says in a line of its own which job it is about. What is a secret
is decided by `agent.host.logs.redaction`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from stoker.agent.host.logs.redaction import hide

LINES_MAX = 100
BYTES_MAX = 16 * 1024
LINE_MAX = 2000


def job_of(line: str) -> str | None:
    """Returns the job that a line of the stock SDK names.

    Such a line is `{"requestId": ..., "message": ..., "level": ...}`.
    """
    if not line.startswith("{") or '"requestId"' not in line:
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    job = fields.get("requestId")
    return job if isinstance(job, str) and "message" in fields else None


def cleaned(lines: Sequence[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Returns the lines as callers may see them. Secrets are removed before a line is cut."""
    return tuple(line[:LINE_MAX] for line in hide(lines, secrets))


def last_lines(lines: Sequence[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Returns the last lines that fit, without secrets."""
    if not lines:
        return ()
    kept: list[str] = []
    left = BYTES_MAX
    for cut in reversed(cleaned(lines[-LINES_MAX:], secrets)):
        left -= len(cut.encode("utf-8", "replace")) + 1
        if left < 0:
            break
        kept.append(cut)
    return tuple(reversed(kept))
