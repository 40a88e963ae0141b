"""The free room of the disk that holds the agent's data folder, as facts for control."""

from __future__ import annotations

import os
from pathlib import Path

STEPS = 100
"""The free room is rounded down to a part of the disk in so many, so that it is reported when it matters."""


def disk_facts(folder: Path) -> dict[str, str]:
    """Returns `disk_free` and `disk_total` in bytes; nothing where the disk does not tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    step = max(total // STEPS, 1)
    return {"disk_free": str(free // step * step), "disk_total": str(total)}
