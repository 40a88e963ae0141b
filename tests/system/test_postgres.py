"""Control on PostgreSQL as a real process: killed and started again, and bereft of its database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.stack import SOURCE, START_S, Stack, queue_endpoint, running, until

ENDPOINT = queue_endpoint("waits", "recording/first_attempt_waits.py")
PASSWORD = "hidden-password"


def job_input(folder: Path) -> dict[str, str]:
    return {"go": str(folder / "go"), "runs": str(folder / "runs")}


def stoker(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "stoker.cli", *arguments, "--data-dir", str(folder / "data")]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE), **variables}
    return subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def url(postgres: Any) -> Any:
    made = postgres.fresh()
    yield made
    postgres.drop(made)


@pytest.mark.slow
def test_a_killed_control_finds_its_jobs_again(tmp_path: Path, url: str) -> None:
    assert PASSWORD in url
    with running(tmp_path, ENDPOINT, database=url) as stack:
        running_job = stack.run("waits", job_input(tmp_path))
        stack.first_chunk("waits", running_job)
        queued = stack.run("waits", job_input(tmp_path) | {"go": "/"})
        stack.kill("control")
        stack.start_control()
        (tmp_path / "go").touch()
        for job in (running_job, queued):
            record = stack.end_of("waits", job)
            assert (record["status"], record["output"]) == ("COMPLETED", {"attempt": 1})
        assert not (tmp_path / "data" / "stoker.db").exists()
        listed = stoker(tmp_path, "key", "list", STOKER_DATABASE_URL=url)
        assert stack.key.split("_")[1] in listed.stdout
        for name in ("control", "agent"):
            assert PASSWORD not in stack.log(name)


@pytest.mark.slow
def test_a_second_control_says_why_it_does_not_start(tmp_path: Path, url: str) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with running(tmp_path / "first", ENDPOINT, database=url) as stack:
        key = (tmp_path / "first" / "data" / "secret.key").read_text()
        arguments = ("control", "--port", "0", "--grpc-port", "0", "--database", url)
        refused = stoker(tmp_path / "second", *arguments, STOKER_SECRET_KEY=key)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1].endswith("cannot be opened: another control works on it")
        assert PASSWORD not in refused.stdout + refused.stderr
        assert stack.runsync("waits", job_input(tmp_path) | {"go": "/"})["status"] == "COMPLETED"


def ready(stack: Stack) -> tuple[int, set[str]]:
    """The answer of `/ready`, and the checks that fail."""
    answer = stack.http.get(f"{stack.facts['http']}/ready")
    return answer.status_code, {name for name, said in answer.json()["checks"].items() if said != "ok"}


@pytest.mark.slow
def test_a_database_that_was_away_is_found_again(tmp_path: Path, url: str, postgres: Any) -> None:
    with running(tmp_path, ENDPOINT, database=url) as stack:
        job = stack.run("waits", job_input(tmp_path))
        stack.first_chunk("waits", job)
        postgres.kill()
        refused = stack.http.post("/waits/run", json={"input": {}})
        assert refused.status_code == 503
        assert "the database went away" in refused.text
        until(
            lambda: ready(stack) == (503, {"database", "writes", "migrations"}),
            START_S,
            "a control that is not ready",
        )
        (tmp_path / "go").touch()  # it ends while nobody can write that down
        postgres.start()
        record = stack.end_of("waits", job)
        assert (record["status"], record["output"]) == ("COMPLETED", {"attempt": 1})
        until(lambda: ready(stack) == (200, set()), START_S, "a control that is ready again")
        over = "the outage of the database is over"
        until(lambda: over in stack.log("control"), START_S, "a line at the end of the outage")
        told = [line for line in stack.log("control").splitlines() if "nothing was stored" in line]
        assert ["an outage of the database begins" in line for line in told if " ERROR " in line] == [True]
        assert PASSWORD not in stack.log("control")
