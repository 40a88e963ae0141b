"""Measures procrastinate's claim for comparison: its schema, on the same server and at the same depths.

procrastinate stores jobs in PostgreSQL, too, and fetches one by calling a function of its schema. This module
times that call with its commit, without procrastinate's worker, which is slower. It must be installed in an
environment of its own:

    python3 -m venv .peers/procrastinate
    .peers/procrastinate/bin/pip install procrastinate==3.10.0 'psycopg[binary]'
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

PROGRAM = Path(__file__).resolve().parent.parent / ".peers" / "procrastinate" / "bin" / "procrastinate"

_FILL = """
ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER;
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'echo', 'echo', '{"prompt": "a lighthouse in a storm", "seed": 7}' FROM generate_series(1, %d);
ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER;
"""
_FETCH = "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['echo'], %s)"
_FINISH = "SELECT procrastinate_finish_job_v1(%s, 'succeeded', false)"
_DEFER = """
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
VALUES ('echo', 'echo', '{"prompt": "a lighthouse in a storm", "seed": 7}')
"""


def schema() -> str | None:
    """The SQL of procrastinate's schema; None if it is not installed."""
    if not PROGRAM.exists():
        return None
    command = [str(PROGRAM), "schema", "--read"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def claims(url: str, installs: str, depth: int, number: int) -> list[float]:
    """The seconds of each of `number` claims by one worker; the queue has `depth` jobs before each."""
    with psycopg.connect(url, autocommit=True) as conn:
        _execute(conn, installs)
        _execute(conn, _FILL % depth)
        _execute(conn, "VACUUM ANALYZE procrastinate_jobs")
        _execute(conn, "CHECKPOINT")
        row = conn.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id").fetchone()
        assert row is not None
        return [_claim(conn, row[0]) for _ in range(number)]


def _execute(conn: psycopg.Connection[Any], statements: str) -> None:
    conn.execute(statements.encode())


def _claim(conn: psycopg.Connection[Any], worker: int) -> float:
    began = time.perf_counter()
    row = conn.execute(_FETCH, (worker,)).fetchone()
    took = time.perf_counter() - began
    assert row is not None
    assert row[0] is not None
    conn.execute(_FINISH, (row[0],))
    conn.execute(_DEFER)
    return took
