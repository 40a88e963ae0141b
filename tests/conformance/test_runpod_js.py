"""npm's `runpod-sdk` against our real processes; every answer has the fields that its types declare."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conformance.stock_client import Raised, StockClient
from tests.system.stack import Stack

# The types of dist/src/index.d.ts, as far as they say more than `any`; a number is an int on our wire.
INCOMPLETE = {"status": str, "id": str}
COMPLETED = {"status": str, "id": str, "executionTime": int, "delayTime": int}
CANCELLED = COMPLETED
PURGED = {"removed": int, "status": str}
JOBS = dict.fromkeys(("completed", "failed", "inProgress", "inQueue", "retried"), int)
WORKERS = dict.fromkeys(("idle", "initializing", "ready", "running", "throttled"), int)


def fields(answer: dict[str, Any], declared: dict[str, type]) -> dict[str, Any]:
    assert {name: type(answer.get(name)) for name in declared} == declared, answer
    return answer


def test_run_sync_completes(javascript: StockClient) -> None:
    reported = fields(javascript.ask("runSync", endpoint="echo", request={"input": {"n": 1}}), COMPLETED)
    assert reported["output"] == {"n": 1}
    assert (reported["started"], reported["completed"], reported["succeeded"]) == (True, True, True)


def test_run_sync_of_a_failing_job_is_completed_and_has_not_succeeded(javascript: StockClient) -> None:
    reported = fields(javascript.ask("runSync", endpoint="raises", request={"input": {}}), COMPLETED)
    assert (reported["status"], reported["completed"], reported["succeeded"]) == ("FAILED", True, False)
    assert "seven is too many" in reported["error"]


def test_run_then_status_until_it_is_complete(javascript: StockClient) -> None:
    submitted = fields(javascript.ask("run", endpoint="echo", request={"input": {"n": 2}}), INCOMPLETE)
    assert submitted["status"] == "IN_QUEUE"
    fields(javascript.ask("statusSync", endpoint="echo", job=submitted["id"]), COMPLETED)
    reported = fields(javascript.ask("status", endpoint="echo", job=submitted["id"]), COMPLETED)
    assert (reported["id"], reported["output"]) == (submitted["id"], {"n": 2})
    assert (reported["completed"], reported["succeeded"]) == (True, True)


def test_a_policy_a_webhook_v2_and_an_s3_config_are_taken(javascript: StockClient) -> None:
    """Everything that the type of a submission names."""
    bucket = dict.fromkeys(("accessId", "accessSecret", "bucketName", "objectPath"), "x")
    request = {
        "input": {"n": 3},
        "webhookV2": "https://example.com/v2",
        "policy": {"executionTimeout": 60_000, "lowPriority": False, "ttl": 60_000},
        "s3Config": bucket | {"endpointUrl": "https://s3.example.com"},
    }
    assert javascript.ask("runSync", endpoint="echo", request=request)["output"] == {"n": 3}


def test_a_job_that_runs_reads_in_progress(javascript: StockClient, occupied: str) -> None:
    reported = fields(javascript.ask("status", endpoint="waits", job=occupied), INCOMPLETE)
    assert (reported["status"], reported["started"], reported["completed"]) == ("IN_PROGRESS", True, False)
    assert type(reported["delayTime"]) is int


@pytest.mark.parametrize(
    ("endpoint", "chunks"), [("counts", [{"output": {"number": n}} for n in range(3)]), ("raises", [])]
)
def test_a_stream_ends_with_its_job(
    javascript: StockClient, stack: Stack, endpoint: str, chunks: list[Any]
) -> None:
    job = stack.run(endpoint, {})
    assert javascript.ask("stream", endpoint=endpoint, job=job) == chunks


def test_a_long_stream_is_read_without_a_gap_or_a_repetition(javascript: StockClient, stack: Stack) -> None:
    """This SDK asks for the next part as soon as it has one."""
    job = stack.run("counts", {"count": 500})
    reported = javascript.ask("stream", endpoint="counts", job=job)
    assert [chunk["output"]["number"] for chunk in reported] == list(range(500))


def test_the_stream_of_a_cancelled_job_ends(javascript: StockClient, stack: Stack, occupied: str) -> None:
    javascript.begin("stream", endpoint="waits", job=occupied)
    stack.http.post(f"/waits/cancel/{occupied}")
    assert javascript.answer() == []
    reported = fields(javascript.ask("status", endpoint="waits", job=occupied), COMPLETED)
    assert (reported["status"], reported["completed"], reported["succeeded"]) == ("CANCELLED", True, False)


def test_cancel_reports_the_times_that_its_type_declares(javascript: StockClient, occupied: str) -> None:
    reported = fields(javascript.ask("cancel", endpoint="waits", job=occupied), CANCELLED)
    assert (reported["id"], reported["status"]) == (occupied, "CANCELLED")


def test_cancel_of_a_finished_job_reports_its_end(javascript: StockClient, stack: Stack) -> None:
    job = stack.runsync("echo", {"n": 4})["id"]
    reported = fields(javascript.ask("cancel", endpoint="echo", job=job), CANCELLED)
    assert reported["status"] == "COMPLETED"


def test_health(javascript: StockClient) -> None:
    reported = javascript.ask("health", endpoint="echo")
    fields(reported["jobs"], JOBS)
    fields(reported["workers"], WORKERS)


def test_a_purge_removes_what_waits(javascript: StockClient, stack: Stack, occupied: str) -> None:
    waiting = stack.run("waits", {})
    reported = fields(javascript.ask("purgeQueue", endpoint="waits"), PURGED)
    assert reported == {"removed": 1, "status": "completed"}
    assert javascript.ask("status", endpoint="waits", job=waiting)["status"] == "CANCELLED"
    assert javascript.ask("status", endpoint="waits", job=occupied)["status"] == "IN_PROGRESS"


def test_an_unknown_job_is_rejected_with_404(javascript: StockClient) -> None:
    with pytest.raises(Raised) as raised:
        javascript.ask("status", endpoint="echo", job=f"{uuid.uuid4()}-u1")
    assert raised.value.status == 404


def test_a_wrong_key_is_rejected_with_401(javascript: StockClient) -> None:
    with pytest.raises(Raised) as raised:
        javascript.ask("status", endpoint="echo", job="any", key="sk_wrong")
    assert raised.value.status == 401
