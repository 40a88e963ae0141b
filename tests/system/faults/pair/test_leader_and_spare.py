"""A leader and a spare on one PostgreSQL, with agents and callers, as real processes: leaders, agents and the
server are killed, and stand still; each accepted job ends once, with its own output, and is billed once.

The figures that it prints are of this run: how long callers were refused, and how soon work went on.
`bench/outages/leader_and_spare.py` writes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.postgres_server import PostgresServer
from tests.system.faults.pair.checked_story import told

PAUSED_S = 70.0
RESUMES_S = 5.0
"""After a kill, beside what a new job takes at the same load without one."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("jobs", "pause_s"), [(500, 0.0), (5000, PAUSED_S)], ids=["few", "many"])
def test_each_job_ends_once_whatever_ends_or_stands_still_meanwhile(
    tmp_path: Path, jobs: int, pause_s: float
) -> None:
    server = PostgresServer()
    try:
        stages = told(tmp_path, server, jobs, pause_s)
    finally:
        server.close()
    by_name = {stage.name: stage for stage in stages}
    for stage in stages:
        if "leader killed" in stage.name:
            assert stage.resumed_s <= RESUMES_S + stage.usual_s, stage
    if pause_s:
        still = by_name["leader and agent paused"]
        assert still.unserved_s < pause_s, "callers were served while the leader stood still"
        database = by_name["database paused"]
        assert database.refused_s > pause_s / 2, "callers were told, and not kept waiting"
