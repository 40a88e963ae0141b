"""Record shapes, as existing clients check them."""

import json
from typing import Any

import orjson
import pytest

from stoker.control.jobs import records
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import AttemptLog, StoredChunk
from stoker.control.rules.types import EndpointHealth, JobView, Page


def view(state: JobState, **fields: Any) -> JobView:
    return JobView(id="j", endpoint="e", state=state, created_at=0.0, **fields)


def wire(record: object) -> Any:
    return json.loads(orjson.dumps(record))


def test_accepted_is_queued_whatever_happened_since() -> None:
    assert wire(records.accepted(view(JobState.IN_PROGRESS, worker="w"))) == {"id": "j", "status": "IN_QUEUE"}


def test_queued() -> None:
    assert wire(records.record(view(JobState.IN_QUEUE))) == {"id": "j", "status": "IN_QUEUE"}


def test_queued_says_why_and_after_how_many_tries() -> None:
    waiting = view(JobState.IN_QUEUE, reason="no capacity", retries=1, delay_ms=0)
    assert wire(records.record(waiting)) == {
        "id": "j",
        "status": "IN_QUEUE",
        "reason": "no capacity",
        "retries": 1,
        "delayTime": 0,
    }


def test_running() -> None:
    running = view(JobState.IN_PROGRESS, delay_ms=61_372, worker="w")
    assert wire(records.record(running)) == {
        "id": "j",
        "status": "IN_PROGRESS",
        "delayTime": 61_372,
        "workerId": "w",
    }


def test_running_with_progress() -> None:
    delayed = view(JobState.IN_PROGRESS, reason="no such host")
    assert wire(records.record(delayed))["reason"] == "no such host"
    running = view(JobState.IN_PROGRESS, delay_ms=1, execution_ms=2, progress=b'{"step": 3}')
    assert wire(records.record(running)) == {
        "id": "j",
        "status": "IN_PROGRESS",
        "delayTime": 1,
        "executionTime": 2,
        "output": {"step": 3},
    }


@pytest.mark.parametrize(
    "state", [JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED]
)
def test_an_end_always_has_five_fields(state: JobState) -> None:
    assert wire(records.record(view(state))) == {
        "id": "j",
        "status": state.value,
        "delayTime": 0,
        "executionTime": 0,
        "workerId": "",
    }


def test_completed() -> None:
    done = view(JobState.COMPLETED, delay_ms=5, execution_ms=6, worker="w", output=b"[]", retries=1)
    assert wire(records.record(done)) == {
        "id": "j",
        "status": "COMPLETED",
        "delayTime": 5,
        "executionTime": 6,
        "workerId": "w",
        "output": [],
        "retries": 1,
    }


def test_an_output_of_null_was_produced() -> None:
    assert wire(records.record(view(JobState.COMPLETED, output=b"null")))["output"] is None


def test_an_end_says_why() -> None:
    purged = wire(records.record(view(JobState.CANCELLED, reason="purged")))
    assert (purged["status"], purged["reason"]) == ("CANCELLED", "purged")


def test_an_output_that_is_too_large_to_be_reported_is_where_it_says() -> None:
    where = b'{"output_url":"https://objects.example/x?signed","size":30000000,"sha256":"ab"}'
    assert wire(records.record(view(JobState.COMPLETED, output=where)))["output"] == json.loads(where)


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (JobState.IN_QUEUE, {"reason": "starting"}),
        (JobState.IN_PROGRESS, {"progress": b"1", "worker": "w", "delay_ms": 3}),
        (JobState.COMPLETED, {"output": b"[1]"}),
        (JobState.FAILED, {"error": "boom", "retries": 2}),
    ],
)
def test_a_listed_record_has_its_submissions_time_and_no_output(state: JobState, fields: Any) -> None:
    one = JobView(id="j", endpoint="e", state=state, created_at=1_760_000_000.1234, **fields)
    alone = wire(records.record(one))
    alone.pop("output", None)
    listed = wire(records.page(Page((one,), cursor=17)))
    assert listed == {"requests": [alone | {"createdAt": 1_760_000_000_123}], "cursor": "17"}


def test_the_last_page_has_no_cursor() -> None:
    assert wire(records.page(Page(()))) == {"requests": [], "cursor": None}


def test_a_webhook_receives_the_record_and_what_was_submitted() -> None:
    done = view(
        JobState.COMPLETED, delay_ms=9_533, execution_ms=88, worker="w", webhook="https://c/x", output=b"1"
    )
    reported = json.loads(records.webhook_body(done, b'{"x":[1, 2]}'))
    assert reported == wire(records.record(done)) | {"input": {"x": [1, 2]}, "webhook": "https://c/x"}


def test_purged_and_logs() -> None:
    assert wire(records.purged(3)) == {"removed": 3, "status": "completed"}
    attempts = (AttemptLog(1, "w", ("a", "b")),)
    assert wire(records.logs("j", attempts)) == {
        "id": "j",
        "logs": [{"attempt": 1, "worker": "w", "lines": ["a", "b"]}],
    }


@pytest.mark.parametrize("state", list(JobState))
def test_only_a_cancelled_job_reads_otherwise_once_its_end_was_reported(state: JobState) -> None:
    again = wire(records.stream_poll(view(state), (), end_reported=True))
    if state is JobState.CANCELLED:
        assert again == {"status": "FAILED", "stream": [], "error": "job was cancelled"}
    else:
        assert again == {"status": state.value, "stream": []}


def test_failed_keeps_an_output() -> None:
    failed = wire(records.record(view(JobState.FAILED, output=b"1", error="boom", progress=b"2")))
    assert (failed["output"], failed["error"]) == (1, "boom")


def test_progress_is_not_an_output_after_the_end() -> None:
    assert "output" not in wire(records.record(view(JobState.FAILED, error="x", progress=b"2")))


@pytest.mark.parametrize(
    ("state", "fields", "error"),
    [
        (JobState.TIMED_OUT, {}, "timed out"),
        (JobState.TIMED_OUT, {"reason": "executionTimeout of 5000 ms passed"}, "executionTimeout of 5000 ms"),
        (JobState.TIMED_OUT, {"error": "timed out in denoise"}, "timed out in denoise"),
        (JobState.CANCELLED, {}, "cancelled"),
        (JobState.FAILED, {"error": "boom"}, "boom"),
        (JobState.FAILED, {}, "no reason"),
    ],
)
def test_a_hosted_result_that_is_none_reads_failed(state: JobState, fields: Any, error: str) -> None:
    shown = wire(records.hosted_result(view(state, **fields)))
    assert shown["status"] == "FAILED"
    assert error in shown["error"]
    assert {"id", "delayTime", "executionTime", "workerId"} <= set(shown)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.IN_QUEUE, JobState.IN_PROGRESS])
def test_other_hosted_answers_are_the_record(state: JobState) -> None:
    assert wire(records.hosted_result(view(state))) == wire(records.record(view(state)))


def test_a_poll_always_has_a_stream() -> None:
    assert wire(records.stream_poll(view(JobState.IN_QUEUE), ())) == {"status": "IN_QUEUE", "stream": []}
    chunks = (StoredChunk(1, 0, b'"a"'), StoredChunk(1, 1, b"null"))
    assert wire(records.stream_poll(view(JobState.COMPLETED), chunks)) == {
        "status": "COMPLETED",
        "stream": [{"output": "a"}, {"output": None}],
    }


def test_health_names_the_devices_that_are_unhealthy_where_there_are_some() -> None:
    reported = wire(
        records.health(EndpointHealth(unhealthy_devices={"GPU-1": "Xid 79: the GPU has fallen off the bus"}))
    )
    assert reported["devices"] == {"ill": {"GPU-1": "Xid 79: the GPU has fallen off the bus"}}
    assert len(reported["workers"]) == 6


def test_health_says_why_workers_are_throttled() -> None:
    assert (
        wire(records.health(EndpointHealth(throttled=1, reason="throttled: x")))["reason"] == "throttled: x"
    )
    assert "reason" not in wire(records.health(EndpointHealth()))


def test_health_has_its_eleven_counters() -> None:
    counted = EndpointHealth(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    assert wire(records.health(counted)) == {
        "jobs": {"completed": 1, "failed": 2, "inProgress": 3, "inQueue": 4, "retried": 5},
        "workers": {
            "idle": 6,
            "initializing": 7,
            "ready": 8,
            "running": 9,
            "throttled": 10,
            "unhealthy": 11,
        },
    }
