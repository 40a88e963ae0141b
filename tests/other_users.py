"""Workers as other users, in tests: only root may choose users, and they must reach this checkout."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SYSTEM_PYTHON = "/usr/bin/python3"
"""Another user may not reach the interpreter of a virtual environment."""


def _why_not() -> str:
    if os.geteuid() != 0:
        return "only root may choose another user"
    if not os.path.exists(SYSTEM_PYTHON):
        return f"there is no {SYSTEM_PYTHON}, which other users may run"
    closed = [one for one in (ROOT, *ROOT.parents) if not one.stat().st_mode & stat.S_IXOTH]
    return f"other users cannot reach {ROOT}: chmod o+x {closed[0]}" if closed else ""


WHY_NOT = _why_not()
"""Why no test runs a worker as another user; empty where they do."""

other_users = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
