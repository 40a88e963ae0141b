"""A rogue worker under an agent as an operator starts it: what it hands over holds up no end of the agent."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.system.stack import START_S, STOP_S, Stack, queue_endpoint, running, until

ROGUE = queue_endpoint("rogue", "interfering/takes_over.py")
CHUNK = {"header": '{"t":"chunk","n":0,"fd":1,"job":"JOB","attempt":ATTEMPT}', "fds": ["sparse"]}
"""A terabyte of nothing. To read it takes a quarter of an hour, and nobody may look at it that long."""

DONE = {"header": '{"t":"done","job":"JOB","attempt":ATTEMPT}', "body": "1"}
OUTCOMES = [pytest.param([], id="while the job runs"), pytest.param([DONE], id="after it said done")]


@pytest.mark.parametrize("then", OUTCOMES)
@pytest.mark.slow
def test_a_chunk_without_end_fails_its_job_and_the_agent_stops_at_sigterm(
    tmp_path: Path, then: list[dict[str, str]]
) -> None:
    with running(tmp_path, ROGUE, options=["--grace", "1"]) as stack:
        took = tmp_path / "took"
        job = stack.run("rogue", {"says": [CHUNK | {"took": str(took)}, *then]})
        until(took.exists, START_S, "an answer to the chunk", lambda: stack.status("rogue", job))
        assert ended_by_sigterm(stack) == 0
        record = stack.status("rogue", job)
        assert record["status"] == "FAILED"
        assert "a partial output of 1099511627776 bytes is over the limit" in record["error"]


def ended_by_sigterm(stack: Stack) -> int:
    """The agent's exit status; it gets its grace, the ladder of its worker, and a slow machine's time."""
    stack.agent.send_signal(signal.SIGTERM)
    try:
        return stack.agent.wait(STOP_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the agent did not stop:\n{stack.end_of_log('agent')}") from None
