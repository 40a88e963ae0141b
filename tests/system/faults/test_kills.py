"""kill -9 in the middle of a job: of the handler, of the agent, of control. Each job ends once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.children import cgroups_of
from tests.system.stack import GONE_S, Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("waits", "recording/first_attempt_waits.py")


def job_input(folder: Path) -> dict[str, str]:
    return {"go": str(folder / "go"), "runs": str(folder / "runs")}


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().split()


def workers_left(stack: Stack) -> list[str]:
    """With what they are forked from."""
    return [line for line in stack.left_over() if "stoker.worker" in line]


def stays_ended(stack: Stack, job: str, record: dict[str, object]) -> None:
    """Nothing is delivered twice: the record is the same once everything has settled."""
    assert stack.runsync("waits", job_input(stack.folder) | {"go": "/"})["status"] == "COMPLETED"
    assert stack.http.get(f"/waits/status/{job}").json() == record
    health = stack.http.get("/waits/health").json()
    assert health["jobs"]["completed"] == 2
    assert health["jobs"]["inProgress"] == health["jobs"]["inQueue"] == 0


@pytest.mark.slow
def test_a_killed_handler_is_replaced_and_its_job_tried_again(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        job = stack.run("waits", job_input(tmp_path))
        started = stack.first_chunk("waits", job)
        os.kill(started["pid"], signal.SIGKILL)
        record = stack.end_of("waits", job)
        assert record["status"] == "COMPLETED"
        assert record["output"] == {"attempt": 2}
        assert record["retries"] == 1
        assert runs(tmp_path) == ["1", "2"]
        stays_ended(stack, job, record)


def test_a_killed_agent_takes_its_workers_along_and_the_job_is_tried_again(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        job = stack.run("waits", job_input(tmp_path))
        worker = psutil.Process(stack.first_chunk("waits", job)["pid"])
        assert workers_left(stack), "it is not seen while it lives"
        folders = [path for name in ("scratch", "homes") for path in (tmp_path / "agent" / name).iterdir()]
        assert len(folders) == 2, "its job's and its own"
        first = stack.agent.pid
        stack.kill("agent")
        gone, alive = psutil.wait_procs([worker], timeout=60)
        assert (gone, alive) == ([worker], [])
        until(lambda: not workers_left(stack), GONE_S, "an end of its template and spare", stack.left_over)
        stack.start_agent()
        record = stack.end_of("waits", job)
        assert record["status"] == "COMPLETED"
        assert record["output"] == {"attempt": 2}
        assert runs(tmp_path) == ["1", "2"]
        assert not [path for path in folders if path.exists()]
        assert cgroups_of(first) == []
        stays_ended(stack, job, record)


def test_a_result_made_while_control_is_dead_is_delivered_once(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        job = stack.run("waits", job_input(tmp_path))
        stack.first_chunk("waits", job)
        stack.kill("control")
        (tmp_path / "go").touch()
        stack.start_control()
        record = stack.end_of("waits", job)
        assert record["status"] == "COMPLETED"
        assert record["output"] == {"attempt": 1}
        assert "retries" not in record
        assert runs(tmp_path) == ["1"]
        stays_ended(stack, job, record)


def test_a_queued_job_survives_the_death_of_everything(tmp_path: Path) -> None:
    with running(tmp_path, ENDPOINT) as stack:
        first = stack.run("waits", job_input(tmp_path))
        stack.first_chunk("waits", first)
        second = stack.run("waits", job_input(tmp_path))
        stack.kill("control")
        stack.kill("agent")
        (tmp_path / "go").touch()
        stack.start()
        assert stack.end_of("waits", first)["status"] == "COMPLETED"
        assert stack.end_of("waits", second)["status"] == "COMPLETED"
