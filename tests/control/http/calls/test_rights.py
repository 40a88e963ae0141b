"""What keys may do at endpoints: the router checks before the operation begins."""

from __future__ import annotations

import json

import httpx2
import pytest
from msgspec.structs import replace

from stoker.control.rules.access import Access
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.types import JobView
from tests.control.http.calls.fake_plane import FakePlane, endpoint

READS = [("GET", "status/{job}"), ("GET", "stream/{job}"), ("GET", "health"), ("GET", "requests")]
READS += [
    ("GET", "logs/{job}"),
    ("GET", "attempts/{job}"),
    ("GET", "input/{job}"),
    ("GET", "status-sync/{job}?wait=1"),
]
WRITES = [("POST", "run"), ("POST", "runsync"), ("POST", "cancel/{job}"), ("POST", "retry/{job}")]
WRITES += [("POST", "purge-queue"), ("POST", "files"), ("GET", "status/{job}?ttl=60000")]

NONE = Access("restricted", "write", {"other": "write"})
LOOKS = Access("restricted", "none", {"echo": "read"})
READ_ONLY = Access("read")
CALLS = Access("restricted", "none", {"echo": "write"})


@pytest.mark.parametrize(("method", "path"), READS + WRITES)
@pytest.mark.parametrize("access", [NONE, LOOKS, READ_ONLY, CALLS], ids=["none", "looks", "read", "calls"])
async def test_a_key_does_what_it_has_a_right_to(
    plane: FakePlane, http: httpx2.AsyncClient, method: str, path: str, access: Access
) -> None:
    plane.access["sk-weak"] = access
    job = plane.add(state=JobState.FAILED).id
    headers = {"Authorization": "Bearer sk-weak"}
    answer = await http.request(method, f"/v2/echo/{path.format(job=job)}", headers=headers, content=b"{}")
    may = access is CALLS or (access in (LOOKS, READ_ONLY) and (method, path) in READS)
    assert (answer.status_code != 401) is may, answer.text
    if not may:
        assert "this key may not" in answer.json()["error"]
        assert "at endpoint echo" in answer.json()["error"]
        assert not plane.submitted


async def test_an_alias_is_no_way_around(plane: FakePlane, http: httpx2.AsyncClient) -> None:
    plane.access["sk-weak"] = Access("restricted", "none", {"other-echo": "write", "echo": "none"})
    answer = await http.get("/v2/other-echo/health", headers={"Authorization": "sk-weak"})
    assert answer.status_code == 401
    plane.access["sk-weak"] = CALLS
    answer = await http.get("/v2/other-echo/health", headers={"Authorization": "sk-weak"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("access", "status"),
    [
        (Access("all"), 200),
        (Access("restricted", "none", {"echo": "read"}, cases=True), 200),
        (LOOKS, 403),
        (CALLS, 403),
        (READ_ONLY, 403),
        (Access("restricted", "none", {"other": "read"}, cases=True), 401),
    ],
)
async def test_a_case_needs_a_right_of_its_own(
    plane: FakePlane, http: httpx2.AsyncClient, access: Access, status: int
) -> None:
    plane.access["sk-weak"] = access
    job = plane.add(state=JobState.FAILED).id
    answer = await http.get(f"/v2/echo/case/{job}", headers={"Authorization": "Bearer sk-weak"})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert "may not read the cases of jobs at endpoint echo" in answer.json()["error"]


@pytest.mark.parametrize(
    ("access", "status"),
    [
        (Access("all"), 200),
        (Access("restricted", "none", {"echo": "write"}, cases=True), 200),
        (Access("restricted", "none", {"echo": "read"}, cases=True), 401),
        (CALLS, 403),
        (READ_ONLY, 401),
    ],
)
async def test_a_replay_needs_the_right_to_cases_and_to_submit(
    plane: FakePlane, http: httpx2.AsyncClient, access: Access, status: int
) -> None:
    plane.access["sk-weak"] = access
    job = plane.add(state=JobState.FAILED).id
    headers = {"Authorization": "Bearer sk-weak"}
    answer = await http.post(f"/v2/echo/replay/{job}?node=n1", headers=headers)
    assert answer.status_code == status, answer.text
    assert len(plane.wishes) == (status == 200)


def a_replay(plane: FakePlane) -> JobView:
    """Adds the replay of a job of the endpoint echo on node n1."""
    requested = {"replay": {"job": "j", "endpoint": "echo", "node": "n1", "stop_after": 0}}
    plane.endpoints.put(replace(endpoint("a-replay"), requested=requested))
    return plane.add(endpoint="a-replay")


async def test_a_replay_is_called_by_the_keys_of_its_jobs_endpoint(
    plane: FakePlane, http: httpx2.AsyncClient
) -> None:
    job = a_replay(plane).id
    headers = {"Authorization": "Bearer sk-weak"}
    plane.access["sk-weak"] = LOOKS
    answer = await http.get(f"/v2/a-replay/status/{job}", headers=headers)
    assert (answer.json()["replayOf"], answer.json()["replayedOn"]) == ("j", "n1")
    assert (await http.get(f"/v2/a-replay/case/{job}", headers=headers)).status_code == 403
    plane.access["sk-weak"] = Access("restricted", "none", {"echo": "read"}, cases=True)
    for operation in ("attempts", "case", "input"):
        answer = await http.get(f"/v2/a-replay/{operation}/{job}", headers=headers)
        assert (answer.status_code, answer.json()["id"]) == (200, job)
    plane.access["sk-weak"] = Access("restricted", "none", {"a-replay": "write"}, cases=True)
    for operation in ("status", "attempts", "case", "input"):
        assert (await http.get(f"/v2/a-replay/{operation}/{job}", headers=headers)).status_code == 401


async def test_each_record_of_a_replay_says_what_it_replays(
    plane: FakePlane, http: httpx2.AsyncClient
) -> None:
    job = a_replay(plane)
    done = replace(job, state=JobState.COMPLETED, output=b"1")
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", done))
    answer = await http.get(f"/v2/a-replay/stream/{job.id}", headers={"Accept": "text/event-stream"})
    ended = json.loads(answer.text.partition("data: ")[2])
    assert (ended["output"], ended["replayOf"], ended["replayedOn"]) == (1, "j", "n1")
    for method, operation in (("POST", "cancel"), ("GET", "status"), ("GET", "status-sync")):
        record = (await http.request(method, f"/v2/a-replay/{operation}/{job.id}")).json()
        assert (record["id"], record["replayOf"], record["replayedOn"]) == (job.id, "j", "n1")
