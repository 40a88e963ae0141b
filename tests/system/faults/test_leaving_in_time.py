"""A node that is drained with a deadline or told to stop, with real processes: a job that saves goes on at
another node, no chunk comes twice, and nothing is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.stack import SOURCE, STOP_S, Stack, queue_endpoint, running

ENDPOINT = "counts"


def drain(stack: Stack, node: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "stoker.cli", "node", "drain", node, "--deadline", "100s"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key}
    return subprocess.run(
        [*command, "--url", stack.facts["http"]], env=environment, capture_output=True, text=True, check=False
    )


def streamed(stack: Stack, job: str) -> list[dict[str, Any]]:
    """All that the job emits, as a reader from its beginning to its end gets it."""
    chunks: list[dict[str, Any]] = []
    while True:
        answer = stack.http.get(f"/{ENDPOINT}/stream/{job}?wait=60000").json()
        chunks += [one["output"] for one in answer["stream"]]
        if answer["status"] not in {"IN_QUEUE", "IN_PROGRESS"}:
            assert answer["status"] == "COMPLETED", answer
            return chunks


@pytest.mark.parametrize("leaves", ["drained", "stopped"])
@pytest.mark.slow
def test_a_job_that_saves_leaves_its_node_at_once(tmp_path: Path, leaves: str) -> None:
    endpoint = queue_endpoint(ENDPOINT, "streams/saving.py", workersMax=2)
    with running(tmp_path, endpoint) as stack, stack.another_agent("second"):
        job = stack.run(ENDPOINT, {}, policy={"maxAttempts": 1})
        first = stack.first_chunk(ENDPOINT, job)
        worker = stack.status(ENDPOINT, job)["workerId"]
        node = next(one["name"] for one in nodes(stack) if worker in holders(one))
        if leaves == "drained":
            drained = drain(stack, node)
            assert drained.returncode == 0, drained.stdout + drained.stderr
            assert "is drained, and no worker is left" in drained.stdout + drained.stderr
        else:
            agent = getattr(stack, "second" if node == "second" else "agent")
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(STOP_S) == 0
        chunks = [first, *streamed(stack, job)]
        assert [chunk["number"] for chunk in chunks] == list(range(len(chunks))), "each number once, in order"
        assert [chunk["attempt"] for chunk in chunks] == [1] * (len(chunks) - 20) + [2] * 20
        ends = stack.end_of(ENDPOINT, job)
        assert (ends["output"], "retries" in ends) == ({"count": len(chunks)}, False)
        assert ends["workerId"] != worker
        told = stack.http.get(f"/{ENDPOINT}/attempts/{job}").json()["attempts"]
        assert [one["end"] for one in told] == ["yielded", "completed"], told


def nodes(stack: Stack) -> list[dict[str, Any]]:
    answer = stack.http.get(stack.facts["http"] + "/v1/nodes")
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def holders(node: dict[str, Any]) -> set[str]:
    held = [one for device in node["devices"] for one in device["heldBy"]]
    return {one["workerId"] for one in held if "workerId" in one}
