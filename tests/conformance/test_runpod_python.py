"""The stock `runpod` Python SDK, sync and asyncio, against our real processes.

It waits a second before every poll of a stream and between polls for an end: each such call is made once.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conformance.stock_client import Raised, StockClient
from tests.system.stack import Stack

NUMBERS = [{"number": number} for number in range(3)]


class Sdk:
    """One of the two clients that the SDK has, with the key filled in."""

    def __init__(self, client: StockClient, stack: Stack, *, asyncio: bool) -> None:
        self._client, self._key, self._asyncio = client, stack.key, asyncio

    def ask(self, do: str, endpoint: str, **given: Any) -> Any:
        self.begin(do, endpoint, **given)
        return self.answer()

    def begin(self, do: str, endpoint: str, **given: Any) -> None:
        given = {"endpoint": endpoint, "key": self._key} | given
        if self._asyncio:
            self._client.begin("asyncio", method=do, **given)
        else:
            self._client.begin(do, **given)

    def answer(self) -> Any:
        return self._client.answer()


@pytest.fixture(params=["sync", "asyncio"])
def sdk(request: pytest.FixtureRequest, python: StockClient, stack: Stack) -> Sdk:
    return Sdk(python, stack, asyncio=request.param == "asyncio")


def test_a_job_is_run_and_its_output_read(sdk: Sdk, stack: Stack) -> None:
    reported = sdk.ask("run_to_end", "echo", given={"text": "hello"})
    assert reported["status"] == "COMPLETED"
    assert reported["output"] == {"text": "hello"}
    assert stack.end_of("echo", reported["id"])["output"] == {"text": "hello"}


def test_the_output_of_a_finished_job_can_be_read_again(python: StockClient, stack: Stack) -> None:
    reported = python.ask("run_to_end", endpoint="echo", key=stack.key, given={"n": 1})
    assert reported["again"] == reported["output"] == {"n": 1}


def test_run_sync_gives_the_output(python: StockClient, stack: Stack) -> None:
    given = {"endpoint": "echo", "key": stack.key}
    assert python.ask("run_sync", **given, given={"text": "hello"}) == {"text": "hello"}


def test_an_input_that_the_sdk_wraps_twice_arrives_as_it_was_sent(python: StockClient, stack: Stack) -> None:
    """`run({"input": {}})` goes out as `{"input": {"input": {}}}`."""
    assert python.ask("run_sync", endpoint="echo", key=stack.key, given={}) == {"input": {}}


def test_a_stream_is_read_to_its_end(sdk: Sdk, stack: Stack) -> None:
    reported = sdk.ask("stream", "counts", job=stack.run("counts", {}))
    assert reported == {"chunks": NUMBERS, "status": "COMPLETED"}


def test_the_stream_of_a_failed_job_ends(sdk: Sdk, stack: Stack) -> None:
    reported = sdk.ask("stream", "raises", job=stack.run("raises", {}))
    assert reported == {"chunks": [], "status": "FAILED"}


def test_the_stream_of_a_job_that_timed_out_ends(sdk: Sdk, stack: Stack, overdue: str) -> None:
    stack.end_of("overdue", overdue)
    reported = sdk.ask("stream", "overdue", job=overdue)
    assert reported == {"chunks": [], "status": "TIMED_OUT"}


def test_a_running_job_is_cancelled_and_its_stream_reader_let_go(
    sdk: Sdk, stack: Stack, occupied: str
) -> None:
    """The SDK does not know CANCELLED as the end of a stream; a reader must not poll for ever."""
    sdk.begin("stream", "waits", job=occupied)
    assert stack.http.post(f"/waits/cancel/{occupied}").json()["status"] == "CANCELLED"
    assert sdk.answer()["chunks"] == []
    assert sdk.ask("status", "waits", job=occupied) == "CANCELLED"


def test_cancel_reports_the_job_and_its_end(sdk: Sdk, stack: Stack) -> None:
    job = stack.run("waits", {})
    reported = sdk.ask("cancel", "waits", job=job)
    assert reported["told"]["id"] == job
    assert reported["told"]["status"] == reported["status"] == "CANCELLED"


def test_a_failed_job_reads_failed_and_has_no_output(sdk: Sdk, stack: Stack) -> None:
    job = stack.run("raises", {})
    record = stack.end_of("raises", job)
    assert "seven is too many" in record["error"]
    assert sdk.ask("status", "raises", job=job) == "FAILED"


def test_run_sync_of_a_failing_job_gives_none(python: StockClient, stack: Stack) -> None:
    assert python.ask("run_sync", endpoint="raises", key=stack.key, given={"n": 1}) is None


def test_health_has_its_eleven_counters(sdk: Sdk) -> None:
    reported = sdk.ask("health", "echo")
    assert set(reported["jobs"]) == {"completed", "failed", "inProgress", "inQueue", "retried"}
    assert set(reported["workers"]) == {"idle", "initializing", "ready", "running", "throttled", "unhealthy"}
    assert all(type(count) is int for part in reported.values() for count in part.values())


def test_a_purge_removes_what_waits_and_nothing_else(sdk: Sdk, stack: Stack, occupied: str) -> None:
    waiting = [stack.run("waits", {}) for _ in range(2)]
    assert sdk.ask("purge_queue", "waits") == {"removed": 2, "status": "completed"}
    assert [sdk.ask("status", "waits", job=job) for job in waiting] == ["CANCELLED", "CANCELLED"]
    assert sdk.ask("status", "waits", job=occupied) == "IN_PROGRESS"


def test_an_unknown_job_is_an_http_error_of_404(python: StockClient, stack: Stack) -> None:
    with pytest.raises(Raised) as raised:
        python.ask("status", endpoint="echo", key=stack.key, job=f"{uuid.uuid4()}-u1")
    assert raised.value.kind == "HTTPError"
    assert raised.value.text.startswith("404 Client Error: Not Found")


@pytest.mark.parametrize("do", ["status", "stream"])
def test_an_unknown_job_is_a_key_error_in_asyncio(python: StockClient, stack: Stack, do: str) -> None:
    """This client looks at no HTTP status: a body without a job's `status` is what stops it."""
    with pytest.raises(Raised) as raised:
        python.ask("asyncio", method=do, endpoint="echo", key=stack.key, job=f"{uuid.uuid4()}-u1")
    assert (raised.value.kind, raised.value.text) == ("KeyError", "'status'")


def test_a_wrong_key_is_the_runtime_error_that_the_sdk_has_for_it(python: StockClient) -> None:
    with pytest.raises(Raised) as raised:
        python.ask("run", endpoint="echo", key="sk_wrong", given={"n": 1})
    assert raised.value.kind == "RuntimeError"
    assert raised.value.text == "401 Unauthorized | Make sure Runpod API key is set and valid."


POD = {"name": "p", "image_name": "a/b:1", "gpu_type_id": "NVIDIA A40"}


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("terminate_pod", {"pod_id": "xedezhzb9la3ye"}),
        ("stop_pod", {"pod_id": "xedezhzb9la3ye"}),
        ("resume_pod", {"pod_id": "xedezhzb9la3ye", "gpu_count": 1}),
        ("get_pods", {}),
        ("create_pod", POD),
        ("get_user", {}),
    ],
)
def test_what_is_not_served_never_reads_as_done(
    python: StockClient, stack: Stack, function: str, given: dict[str, Any]
) -> None:
    """A pod that is thought deleted costs money."""
    manage = {"function": function, "given": given}
    with pytest.raises(Raised, match="GraphQL is not served here, and nothing was changed"):
        python.ask("manage", key=stack.key, **manage)
    with pytest.raises(Raised, match=r"(?i)unauthorized|API key"):
        python.ask("manage", key="wrong", **manage)
