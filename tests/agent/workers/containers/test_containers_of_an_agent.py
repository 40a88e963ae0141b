"""Control, an agent and an engine as real processes: jobs in containers, and an agent that is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.agent.workers.containers.plan import AGENT_LABEL
from tests.container_engine_here import IMAGE, patient
from tests.system.stack import START_S, Stack, queue_endpoint, running, until

pytestmark = pytest.mark.slow

PACKAGES = 'env = { PYTHONPATH = "/packages" }\n'
ENDPOINTS = (
    queue_endpoint("prints", "", imageName=IMAGE, handler="/app/printing/prints.py:handler"),
    queue_endpoint("echo", "", imageName=IMAGE, handler="/app/outputs/echo.py:handler"),
    queue_endpoint(
        "stuck", "", imageName=IMAGE, handler="/app/cancelling/stuck_in_c.py:handler", maxAttempts=1
    ),
    queue_endpoint("mixed", "", imageName=IMAGE, dockerStartCmd=["python", "-u", "/programs/mixed.py"])
    + PACKAGES,
    queue_endpoint("absent", "", imageName="localhost:1/none:1"),
)


@pytest.fixture(scope="module")
def stack(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        with running(tmp_path_factory.mktemp("stack"), *ENDPOINTS) as stack:
            stack.agent_options = ["--grace", "1"]  # of those that are started again
            yield stack
        assert containers(address, stack) == []


def containers(address: str, stack: Stack) -> list[Any]:
    """Of this stack's agent."""
    engine = patient(address)
    try:
        node = (stack.folder / "agent" / "node_id").read_text().strip()
        return engine.client.containers(all=True, filters={"label": f"{AGENT_LABEL}={node}"})
    finally:
        engine.close()


def test_a_python_handler(stack: Stack) -> None:
    record = stack.runsync("echo", {"n": 1})
    assert (record["status"], record["output"]) == ("COMPLETED", {"n": 1})


def test_what_a_job_printed_is_kept_with_it(stack: Stack) -> None:
    jobs = [stack.runsync("prints", {})["id"] for _ in range(3)]
    for job in jobs:
        (log,) = stack.http.get(f"/prints/logs/{job}").json()["logs"]
        assert set(log["lines"]) == {"to stdout", "to stderr"}


def test_a_stock_program(stack: Stack, stock: None) -> None:
    record = stack.runsync("mixed", {"do": "return", "value": {"a": 1}})
    assert (record["status"], record["output"]) == ("COMPLETED", {"a": 1})


def test_a_cancel_and_a_timeout_stop_the_work(stack: Stack) -> None:
    job = stack.run("stuck", {})
    stack.in_progress("stuck", job)
    assert stack.http.post(f"/stuck/cancel/{job}").json()["status"] == "CANCELLED"
    job = stack.run("stuck", {}, policy={"executionTimeout": 5000})
    assert stack.end_of("stuck", job)["status"] == "TIMED_OUT"
    assert stack.runsync("stuck", {"seconds": 0})["status"] == "COMPLETED", "the next one runs"


def test_an_image_that_cannot_be_pulled_is_reported_to_all_who_wait(stack: Stack) -> None:
    job = stack.run("absent", {})
    until(lambda: "cannot be pulled" in stack.http.get(f"/absent/status/{job}").text, START_S, "the reason")


def test_an_agent_that_was_killed_and_started_again(address: str, stack: Stack, stock: None) -> None:
    job = stack.run("mixed", {"do": "sleep", "s": 5})
    until(lambda: stack.status("mixed", job)["status"] == "IN_PROGRESS", START_S, "a job in work")
    stack.kill("agent")
    before = {one["Id"] for one in containers(address, stack)}
    assert before, "the engine's, not the agent's children"
    stack.start_agent()
    assert before & {one["Id"] for one in containers(address, stack)} == set()
    assert stack.end_of("mixed", job)["output"] == "slept"
    assert stack.runsync("echo", {"n": 2})["output"] == {"n": 2}


def test_an_agent_that_leaves_hands_back_what_its_containers_do(address: str, stack: Stack) -> None:
    """Without spending an attempt: this endpoint has only one."""
    job = stack.run("stuck", {"seconds": 8})
    stack.in_progress("stuck", job)
    stack.agent.send_signal(signal.SIGTERM)
    assert stack.agent.wait(90) == 0
    assert containers(address, stack) == []
    stack.start_agent()
    record = stack.end_of("stuck", job)
    assert (record["status"], record["output"]) == ("COMPLETED", {"slept": True})
