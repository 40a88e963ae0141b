"""What the pages show of records, as pure functions of them."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client import Attempt, Event, JobAttempts, JobRecord
from stoker.page.access.connections import Rights
from stoker.page.content import words
from stoker.page.content.rollout import rollout
from stoker.page.content.timeline import Moment, timeline
from stoker.page.views import endpoints
from stoker.page.views.billing import as_csv, by_day
from stoker.page.views.endpoint import times_of, worker_row
from stoker.page.views.endpoints import facts_of
from stoker.page.views.fleet import about, device_row, state_of
from stoker.page.views.resources import KINDS, row_of


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (61_000, "1 min 1 s"),
        (3_660_000, "1 h 1 min"),
    ],
)
def test_durations(milliseconds: float | None, text: str) -> None:
    assert words.duration(milliseconds) == text


@given(st.integers(-(1 << 70), 1 << 70))
def test_any_number_is_a_text(number: int) -> None:
    assert words.size(number)
    assert words.moment(number)
    assert words.duration(abs(number))


def test_sizes_costs_and_counts() -> None:
    assert (words.size(1536), words.size(None), words.size(1 << 40)) == ("1.5 KiB", "–", "1.0 TiB")
    assert words.cost_of({"cost": 0.02097152}) == "$0.020972"
    assert words.cost_of({"cost": "free"}) == ""
    assert (
        words.counted({"idle": 1, "running": 2, "other": 3}, running="busy", idle="idle") == "2 busy, 1 idle"
    )
    assert words.counted({"idle": 0}, idle="idle") == "none"
    assert words.log_line("loading") == "loading"
    assert words.log_line("loading", 1_764_292_471_207) == "01:14:31 loading"
    assert words.log_line("loading", 1 << 70) == "– loading"


def test_lines_of_logs_have_their_time() -> None:
    assert words.log_line_of({"line": "a", "printedAt": 1_764_292_471_207}) == "01:14:31 a"
    assert words.log_line_of({"line": "a"}) == "a"
    assert words.log_line_of({"line": "a", "ts": "2026-11-22T08:00:01.123000000Z"}) == "08:00:01 a"


def test_typed_times_go_to_their_end() -> None:
    assert words.typed_moment(" ") is None
    day, minute = words.typed_moment("1970-01-02"), words.typed_moment("1970-01-01 00:01")
    assert (day, minute, words.typed_moment("1970-01-01 00:00:00")) == (2 * 86_400_000 - 1, 119_999, 999)
    with pytest.raises(ValueError, match=r"a time must be like 2026-11-28, .*; got 'noon'"):
        words.typed_moment("noon")


T = 1_764_292_471_000


def told(moments: Iterable[Moment]) -> list[tuple[str, str, int | None]]:
    return [(one.title, one.about, one.at and one.at - T) for one in moments]


def test_a_timeline_tells_the_moments_of_a_job() -> None:
    job = JobRecord("j", "COMPLETED", execution_time=3_000, worker_id="w1")
    one = Attempt(1, "w1", "n1", T + 200, T + 250, T + 1_250, T + 3_250, T + 4_000, 3_000, "completed")
    found = timeline(job, JobAttempts(T, T + 4_000, (one,)), parts=7)
    assert told(found) == [
        ("Queued", "", 0),
        ("Assigned", "to worker w1 on node n1, after 200 ms", 200),
        ("Started", "50 ms after it was assigned", 250),
        ("Streamed", "the first part after 1.0 s, 7 seen", 1_250),
        ("Uploaded", "for 750 ms", 3_250),
        ("Completed", "after 3.0 s of work", 4_000),
    ]
    assert found[1].time == "2025-11-28 01:14:31 UTC"


def test_a_timeline_tells_lost_attempts_before_the_last_one() -> None:
    job = JobRecord("j", "FAILED", error="x", delay_time=1500, execution_time=20, worker_id="w2", retries=1)
    attempts = (
        Attempt(1, "w0", "n1", T, ended_at=T + 10, end="handed_back", reason="another is free"),
        Attempt(2, "w1", None, T + 20, T + 30, ended_at=T + 40, end="node_lost", reason="no word"),
        Attempt(3, "w2", "n2", T + 50, T + 60, ended_at=T + 80, end="failed"),
    )
    assert told(timeline(job, JobAttempts(T, T + 80, attempts))) == [
        ("Queued", "", 0),
        ("Attempt 1 was handed back", "worker w0 on node n1: another is free", 10),
        ("Attempt 2 assigned", "to worker w1, after 10 ms", 20),
        ("Attempt 2 started", "10 ms after it was assigned", 30),
        ("Attempt 2 node lost", "no word", 40),
        ("Attempt 3 assigned", "to worker w2 on node n2, after 10 ms", 50),
        ("Attempt 3 started", "10 ms after it was assigned", 60),
        ("Failed", "after 20 ms of work", 80),
    ]


def test_a_timeline_of_a_job_that_ended_while_it_waited() -> None:
    lost = Attempt(1, "w1", "n1", T, ended_at=T + 10, end="failed", reason="boom")
    found = timeline(JobRecord("j", "CANCELLED", execution_time=0), JobAttempts(T, T + 90, (lost,)))
    assert [one.title for one in found] == ["Queued", "Assigned", "Attempt 1 failed", "Cancelled"]


def test_a_timeline_goes_on_while_an_upload_is_tried_again() -> None:
    """Its reason stands in the entry of its attempt; without that entry, as in attempts that were read before
    the upload began, in one of its own, as does that of a job that began anew."""
    job = JobRecord("j", "IN_PROGRESS", reason="the bucket refuses")
    lost = Attempt(1, "w", "n", T, uploading_at=T + 1, ended_at=T + 2, end="node_lost", reason="no word")
    found = timeline(job, JobAttempts(T, None, (Attempt(1, "w", "n", T, uploading_at=T + 5),)))
    assert told(found)[2:] == [("Uploads", "the bucket refuses", 5)]
    assert (found[-1].icon, found[-1].colour) == ("upload", "warning")
    found = timeline(job, JobAttempts(T, None, (lost, Attempt(2, "w", "n", T + 3, uploading_at=T + 5))))
    assert told(found)[2:] == [
        ("Attempt 1 uploaded", "for 1 ms", 1),
        ("Attempt 1 node lost", "no word", 2),
        ("Attempt 2 assigned", "to worker w on node n, after 1 ms", 3),
        ("Attempt 2 uploads", "the bucket refuses", 5),
    ]
    for attempts in ((), (Attempt(1, "w", "n", T),), (lost,)):
        for reason in ("the bucket refuses", "the job begins anew: its save is gone"):
            found = timeline(replace(job, reason=reason), JobAttempts(T, None, attempts))
            assert told(found)[-1][:2] == ("In progress", reason)


def test_a_timeline_tells_the_work_of_an_attempt_that_was_dropped() -> None:
    dropped = Attempt(1, "w", "n", T, T + 5, ended_at=T + 9, end="dropped", reason="the node forgot it")
    found = timeline(JobRecord("j", "IN_QUEUE"), JobAttempts(T, None, (dropped,)))
    assert told(found)[1:] == [
        ("Assigned", "to worker w on node n, after 0 ms", 0),
        ("Started", "5 ms after it was assigned", 5),
        ("Attempt 1 dropped", "the node forgot it", 9),
    ]


def test_a_timeline_without_moments_says_what_the_record_does() -> None:
    done = JobRecord("j", "FAILED", error="x", delay_time=1500, execution_time=20, worker_id="w2", retries=1)
    assert [one.title for one in timeline(done, None)] == ["Queued", "Started", "Failed"]
    assert timeline(done, None)[1].about == "after 1.5 s on worker w2"
    waits = timeline(JobRecord("j", "IN_QUEUE", reason="no node has a free GPU"), None)
    assert (waits[-1].title, waits[-1].about) == ("Waits", "no node has a free GPU")
    uploads = timeline(JobRecord("j", "IN_PROGRESS", reason="the bucket refuses"), None, parts=7)
    assert [(one.title, one.about) for one in uploads[1:]] == [
        ("Streamed", "7 parts of the output"),
        ("In progress", "the bucket refuses"),
    ]


def test_a_card_of_an_endpoint() -> None:
    health = {"jobs": {"inQueue": 2000, "inProgress": 0}, "workers": {"running": 1, "unhealthy": 1}}
    facts = dict(facts_of({"workersMax": 3, "version": 2, "computeType": "GPU", "health": health}))
    assert facts["Queue"] == "2,000 waiting"
    assert facts["Workers"] == "1 running, 1 unhealthy"
    assert facts["Bounds"] == "0 to 3"
    worker = {"id": "w", "status": "THROTTLED", "reason": "no node has a free GPU", "version": 2}
    row = worker_row(worker)
    assert (row["state"], row["colour"], row["why"]) == ("throttled", "warning", "no node has a free GPU")


async def test_a_list_of_endpoints_begins_again_where_its_place_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control refuses the cursor of a page whose last endpoint was deleted."""

    async def refused(action: object) -> None:
        return None

    monkeypatch.setattr(endpoints, "attempt", refused)
    listed = endpoints.EndpointList(Mock())
    listed._pager._cursors.append("deleted")
    await listed._load()
    assert listed._pager.cursor is None


def test_the_times_of_an_endpoint() -> None:
    known = {"queueAgeMs": 1500, "costPerHr": 3.59, "jobs": 180, "failed": 1, "perMinute": 3.04}
    times = dict(times_of({**known, "delayMs": {"p50": 210, "p95": 1900}}))
    assert times == {
        "Oldest waits": "1.5 s",
        "Throughput": "3.04 a minute",
        "Waited, p50 · p95": "210 ms · 1.9 s",
        "Ran, p50 · p95": "–",
        "Failed lately": "1 of 180",
        "Costs": "$3.5900 an hour",
    }


def test_a_roll_out_is_shown_until_no_worker_of_an_earlier_version_is_left() -> None:
    old, new = {"version": 1, "ready": 2, "others": 0}, {"version": 2, "ready": 1, "others": 1}
    assert rollout(2, [new]) is None
    assert rollout(2, []) is None
    going = rollout(2, [old, new])
    assert going is not None
    assert (going.text, round(going.share, 2)) == (
        "Version 2: 1 ready, 1 not yet; earlier versions: 2",
        0.33,
    )
    begun = rollout(2, [old])
    assert begun is not None
    assert begun.share == 0


def test_a_card_of_a_node() -> None:
    node = {
        "state": "connected",
        "facts": {"vcpus": "2", "memory_bytes": str(1 << 30)},
        "labels": {"zone": "a"},
    }
    assert state_of(node) == "connected"
    assert state_of(node | {"drained": True}) == "drained"
    assert state_of(node | {"drained": True, "revoked": True}) == "revoked"
    assert about(node).endswith("2 virtual CPUs · 1.0 GiB · zone=a")
    device = {"id": "g", "memoryInBytes": 1 << 30, "utilization": 0, "ill": "an Xid 79"}
    row = device_row(device)
    assert (row["memory"], row["utilization"], row["health"]) == ("– of 1.0 GiB", "0 %", "an Xid 79")


def test_bills_by_day_and_as_csv() -> None:
    rows = [
        {"time": "2026-11-26T01:00:00Z", "endpointId": "b", "amount": 1.0},
        {"time": "2026-11-25T01:00:00Z", "endpointId": "a", "amount": 2.0},
        {"time": "2026-11-26T02:00:00Z", "endpointId": "b", "amount": 3.0},
    ]
    assert by_day(rows, "endpointId") == (["2026-11-25", "2026-11-26"], {"a": [2.0, 0.0], "b": [0.0, 4.0]})
    assert list(csv.DictReader(io.StringIO(as_csv(rows))))[1]["endpointId"] == "a"


@given(st.sampled_from("=+-@\t\r"), st.text(st.characters(exclude_categories=["Cs"])))
def test_no_cell_is_a_formula(first: str, rest: str) -> None:
    [row] = csv.DictReader(io.StringIO(as_csv([{"name": first + rest}]), newline=""))
    assert row["name"].startswith("'")


def test_rows_of_resources_are_text() -> None:
    keys = next(kind for kind in KINDS if kind.title == "Keys")
    row = row_of({"id": "k", "name": "<b>", "access": {"scope": "all"}}, keys.columns, 4)
    assert (row["row"], row["name"], row["access"], row["expiresAt"]) == (4, "<b>", '{"scope": "all"}', "")


def test_the_log_of_a_pod_is_followed() -> None:
    async def printed() -> AsyncGenerator[Event, None]:
        yield Event("log", "", {"line": "a", "ts": ""})

    client, lines = Mock(), printed()
    client.pod_log.return_value = lines
    logs = {kind.title: kind.log(client, "p") for kind in KINDS if kind.log is not None}
    assert logs == {"Pods": lines}
    client.pod_log.assert_called_once_with("p")


def test_rights_say_what_is_shown() -> None:
    everything, reader = Rights("all"), Rights("read")
    one = Rights("restricted", "none", {"a": "write", "b": "read"})
    assert (everything.manages, everything.looks, everything.runs("a")) == (True, True, True)
    assert (reader.manages, reader.looks, reader.runs("a")) == (False, True, False)
    assert (one.manages, one.looks) == (False, False)
    assert [one.runs(name) for name in ("a", "b", "c")] == [True, False, False]
    assert Rights("restricted", "write", {"*": "write"}).runs("any")
