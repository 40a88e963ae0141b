"""Strangers at the gRPC port, for some seconds: control's memory stays, its node stays, callers are served.

What callers wait is for the benchmark to tell: a test runs on machines that attackers and control share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
from unauthenticated import measure

MEMORY_MIB = 64


@pytest.mark.slow
def test_unauthenticated_callers_take_no_memory_and_no_session(tmp_path: Path) -> None:
    found = measure(tmp_path, 10.0)
    assert found["memory_more_mib"] < MEMORY_MIB
    assert found["sessions_lost"] == 0
    assert found["jobs_served"] > 0
