"""Timeouts and cancels stop the work, whatever the handler does; the next job on that device completes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.stack import queue_endpoint, running


@pytest.mark.slow
def test_a_handler_stuck_in_native_code_ends_timed_out_and_the_next_job_completes(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint("stuck", "cancelling/ignores_sigterm_in_c.py")) as stack:
        record = stack.runsync("stuck", {"seconds": 3600}, policy={"executionTimeout": 5000})
        assert record["status"] == "TIMED_OUT"
        assert 5000 <= record["executionTime"] < 60_000, "it would sit there for an hour"
        record = stack.runsync("stuck", {"seconds": 0})
        assert record["status"] == "COMPLETED"
        assert record["output"] == {"slept": True}


@pytest.mark.slow
def test_a_cancel_ends_native_code_and_the_next_job_completes(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint("stuck", "cancelling/ignores_sigterm_in_c.py")) as stack:
        job = stack.run("stuck", {"seconds": 3600})
        stack.in_progress("stuck", job)
        assert stack.http.post(f"/stuck/cancel/{job}").json()["status"] == "CANCELLED"
        record = stack.runsync("stuck", {"seconds": 0})
        assert (record["status"], record["output"]) == ("COMPLETED", {"slept": True})


def test_a_cancelled_job_stops_and_its_worker_takes_the_next(tmp_path: Path) -> None:
    with running(tmp_path, queue_endpoint("waits", "recording/first_attempt_waits.py")) as stack:
        job_input = {"go": str(tmp_path / "never"), "runs": str(tmp_path / "runs")}
        job = stack.run("waits", job_input)
        pid = stack.first_chunk("waits", job)["pid"]
        assert stack.http.post(f"/waits/cancel/{job}").json()["status"] == "CANCELLED"
        second = stack.run("waits", job_input | {"go": "/"})
        assert stack.first_chunk("waits", second)["pid"] == pid
        assert stack.end_of("waits", second)["status"] == "COMPLETED"
        assert stack.end_of("waits", job)["status"] == "CANCELLED"
