"""The models of `runpod-flash` parse our answers: `JobOutput` a terminal record, `ServerlessHealth` /health.

`JobOutput` refuses a body that lacks one of id, workerId, status, delayTime and executionTime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.stock_client import Raised, StockClient
from tests.system.stack import Stack

Ended = Callable[[Stack, str], dict[str, Any]]


def completed(stack: Stack, _: str) -> dict[str, Any]:
    return stack.runsync("echo", {"n": 1})


def failed(stack: Stack, _: str) -> dict[str, Any]:
    return stack.end_of("raises", stack.run("raises", {}))


def timed_out(stack: Stack, overdue: str) -> dict[str, Any]:
    return stack.end_of("overdue", overdue)


def cancelled_while_it_ran(stack: Stack, _: str) -> dict[str, Any]:
    job = stack.run("waits", {})
    stack.in_progress("waits", job)
    return _cancelled(stack, job)


def cancelled_in_the_queue(stack: Stack, _: str) -> dict[str, Any]:
    running = stack.run("waits", {})
    stack.in_progress("waits", running)
    record = _cancelled(stack, stack.run("waits", {}))
    _cancelled(stack, running)
    return record


def _cancelled(stack: Stack, job: str) -> dict[str, Any]:
    assert stack.http.post(f"/waits/cancel/{job}").status_code == 200
    return dict(stack.http.get(f"/waits/status/{job}").json())


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (completed, "COMPLETED"),
        (failed, "FAILED"),
        (timed_out, "TIMED_OUT"),
        (cancelled_while_it_ran, "CANCELLED"),
        (cancelled_in_the_queue, "CANCELLED"),
    ],
)
def test_job_output_parses_a_terminal_record(
    flash: StockClient, stack: Stack, overdue: str, end: Ended, status: str
) -> None:
    record = end(stack, overdue)
    assert record["status"] == status
    parsed = flash.ask("job_output", record=record)
    assert parsed == {name: record.get(name, unsaid) for name, unsaid in UNSAID.items()}


UNSAID = dict.fromkeys(("id", "workerId", "status", "delayTime", "executionTime", "output")) | {"error": ""}
"""What the model puts for a field that a record does not have."""


def test_job_output_refuses_what_lacks_a_field(flash: StockClient) -> None:
    """The model checks: a record that it parses has these fields indeed."""
    with pytest.raises(Raised, match="workerId"):
        flash.ask("job_output", record={"id": "a", "status": "FAILED", "delayTime": 0, "executionTime": 0})


def test_health_is_parsed_and_says_that_the_endpoint_is_ready(flash: StockClient, stack: Stack) -> None:
    stack.runsync("echo", {"n": 1})
    counted = stack.http.get("/echo/health").json()
    assert flash.ask("health", counted=counted) == {"health": counted, "ready": True}


def test_its_client_runs_a_job_and_waits_for_it(flash: StockClient, stack: Stack) -> None:
    reported = flash.ask("run_and_wait", endpoint="echo", given={"n": 1})
    assert reported == {"id": reported["id"], "done": True, "output": {"n": 1}, "error": None}
    assert stack.end_of("echo", reported["id"])["output"] == {"n": 1}


def test_its_client_is_reported_the_error_of_a_failed_job(flash: StockClient) -> None:
    reported = flash.ask("runsync", endpoint="raises", given={"n": 1})
    assert (reported["done"], reported["output"]) == (True, None)
    assert "seven is too many" in reported["error"]


def test_its_client_cancels_a_job(flash: StockClient, stack: Stack) -> None:
    job = stack.run("waits", {})
    assert flash.ask("cancel", endpoint="waits", job=job) == {"id": job, "done": True, "status": "CANCELLED"}
