"""Unmodified programs of the stock worker SDK behind a real control and a real agent."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.payloads.test_own_bucket import PRIVATE_ALLOWED, own_bucket
from tests.system.stack import PROGRAMS, Stack, fetched, queue_endpoint, running, until

STOCK = Path(__file__).parents[3] / ".peers" / "python" / "bin" / "python"


def program(name: str, file: str, **fields: Any) -> str:
    """An endpoint whose worker is a program of tests/handlers_protocol."""
    command = [str(STOCK), f"{file}.py"]
    return queue_endpoint(name, "", imageName=f"local:{PROGRAMS}", dockerStartCmd=command, **fields)


ENDPOINTS = (
    PRIVATE_ALLOWED,
    program("mixed", "mixed"),
    program("tokens", "tokens", concurrency=4),
    program("model", "loaded_model"),
    program("refresh", "one_job_each"),
    program("uploads", "uploads"),
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if not STOCK.exists():
        why = STOCK.parents[2] / "python.why"
        pytest.skip(why.read_text().strip() if why.exists() else f"there is no {STOCK}; .ci/peers makes it")
    with running(tmp_path_factory.mktemp("stack"), *ENDPOINTS) as stack:
        yield stack


def begun(stack: Stack, folder: Path) -> str:
    """A job that its program has begun, and does until there is a file `go` in the folder."""
    job_input = {"do": "wait", "begun": str(folder / "begun"), "go": str(folder / "go")}
    job = stack.run("mixed", job_input)
    until((folder / "begun").exists, 60, "a job that has begun")
    return job


@pytest.mark.slow
def test_records_of_every_end(stack: Stack) -> None:
    record = stack.runsync("mixed", {"do": "return", "value": {"a": 1.5}})
    assert (record["status"], record["output"]) == ("COMPLETED", {"a": 1.5})
    record = stack.runsync("mixed", {"do": "return", "value": {"error": "bad thing", "x": 1}})
    assert (record["status"], record["error"], record["output"]) == ("FAILED", "bad thing", {"x": 1})
    record = stack.runsync("mixed", {"do": "return", "value": {}})
    assert record["status"] == "COMPLETED"
    assert "output" not in record
    record = stack.runsync("mixed", {"do": "raise"})
    assert json.loads(record["error"])["error_message"] == "no such voice: é"
    record = stack.runsync("mixed", {"do": "unserialisable"})
    assert record["status"] == "FAILED"
    assert "could not be written as JSON" in record["error"]
    assert record.get("retries", 0) == 0
    lines = stack.http.get(f"/mixed/logs/{record['id']}").json()["logs"][0]["lines"]
    assert any("not JSON serializable" in line for line in lines), lines


def test_what_the_handler_gets_and_a_large_output(stack: Stack) -> None:
    bucket = {
        "accessId": "a",
        "accessSecret": "s3cret",
        "bucketName": "b",
        "endpointUrl": "http://93.184.216.34",
    }
    record = stack.runsync("mixed", {"do": "job"}, s3Config=bucket)
    assert record["output"]["job"]["s3Config"] == bucket
    assert record["output"]["job"]["id"] == record["id"]
    record = stack.runsync("mixed", {"do": "large", "size": 3_000_000})
    assert len(record["output"]["blob"]) == 3_000_000


def test_the_sdk_uploads_to_the_callers_bucket(stack: Stack) -> None:
    record = stack.runsync("uploads", {"text": "for the caller"}, s3Config=own_bucket(stack))
    assert record["status"] == "COMPLETED", record
    assert f"/callers/{record['id']}/a.txt?" in record["output"]["url"]
    assert fetched(record["output"]["url"]).content == b"for the caller"


@pytest.mark.slow
def test_tokens_of_several_jobs_at_once(stack: Stack) -> None:
    jobs = [stack.run("tokens", {"tokens": 5, "pause": 0.05}) for _ in range(4)]

    def whole(job: str) -> tuple[list[str], dict[str, Any]]:
        reported: list[str] = []
        while True:
            answer = stack.http.get(f"/tokens/stream/{job}").json()
            reported += [one["output"]["text"] for one in answer["stream"]]
            if answer["status"] not in ("IN_QUEUE", "IN_PROGRESS"):
                return reported, stack.end_of("tokens", job)

    with ThreadPoolExecutor(4) as threads:
        for reported, record in threads.map(whole, jobs):
            assert reported == [f"token {n}" for n in range(5)]
            assert [one["text"] for one in record["output"]] == reported


@pytest.mark.slow
def test_a_fresh_process_for_each_job_loses_none(stack: Stack) -> None:
    jobs = [stack.run("refresh", {"asks": True}) for _ in range(3)]
    records = [stack.end_of("refresh", job) for job in jobs]
    assert [record["status"] for record in records] == ["COMPLETED"] * 3
    assert len({record["output"]["pid"] for record in records}) == 3
    assert all(record.get("retries", 0) == 0 for record in records)


def test_an_async_handler_is_cancelled_and_its_worker_lives(stack: Stack, tmp_path: Path) -> None:
    before = stack.runsync("model", {"prompt": "a"})["output"]["loaded_in"]
    job = stack.run("model", {"wait": 600, "begun": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists, 60, "a job that has begun")
    assert stack.http.post(f"/model/cancel/{job}").json()["status"] == "CANCELLED"
    assert stack.runsync("model", {"prompt": "b"})["output"]["loaded_in"] == before


@pytest.mark.slow
def test_a_blocked_handler_is_stopped_by_force(stack: Stack) -> None:
    job = stack.run("mixed", {"do": "sleep", "s": 600}, policy={"executionTimeout": 5000})
    record = stack.end_of("mixed", job)
    assert record["status"] == "TIMED_OUT"
    assert stack.runsync("mixed", {"do": "return", "value": "next"})["output"] == "next"


def test_a_killed_program_is_replaced_and_its_job_runs_again(stack: Stack, tmp_path: Path) -> None:
    pid = stack.runsync("mixed", {"do": "pid"})["output"]
    job = begun(stack, tmp_path)
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    record = stack.end_of("mixed", job)
    assert (record["status"], record["output"], record["retries"]) == ("COMPLETED", "waited", 1)
    assert not psutil.pid_exists(pid)


@pytest.mark.slow
def test_a_result_outlives_an_outage_of_control(stack: Stack, tmp_path: Path) -> None:
    job = begun(stack, tmp_path)
    stack.kill("control")
    (tmp_path / "go").touch()
    stack.start_control()
    record = stack.end_of("mixed", job)
    assert (record["status"], record["output"], record.get("retries", 0)) == ("COMPLETED", "waited", 0)


@pytest.mark.slow
def test_an_agent_that_is_killed_leaves_no_program_behind(stack: Stack, tmp_path: Path) -> None:
    pid = stack.runsync("mixed", {"do": "pid"})["output"]
    job = begun(stack, tmp_path)
    program_itself = psutil.Process(pid)
    pingers = program_itself.children(recursive=True)
    assert pingers
    stack.kill("agent")
    stack.start_agent()
    (tmp_path / "go").touch()
    record = stack.end_of("mixed", job)
    assert (record["status"], record["retries"]) == ("COMPLETED", 1)
    assert psutil.wait_procs([program_itself, *pingers], timeout=60)[1] == []
