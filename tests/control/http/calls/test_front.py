"""`X-Request-Id`: a caller's own is given back, another is made, and lines of the log have it."""

from __future__ import annotations

import logging

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.front import HEADER, REQUEST, note_requests, request_id, with_id
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.traces.spans import TraceSpan
from stoker.control.traces.traceparent import parse_traceparent
from stoker.control.traces.traces import Traces
from tests.control.http.calls.fake_plane import KEY, FakePlane


@pytest.mark.parametrize(
    "path", ["/v2/echo/health", "/v2/nobody/health", "/nowhere", "/ping", "/docs", "/graphql"]
)
async def test_every_answer_has_the_callers_id_or_a_new_one(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(path, headers={"X-Request-Id": "mine-7"})
    assert answer.headers.get_list("x-request-id") == ["mine-7"]
    made = [(await http.get(path)).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(len(one) == 24 for one in made)


@pytest.mark.parametrize("given_id", ["", "two words", "x" * 129, "\xe9", "a\tb", 'quo"te'])
async def test_an_id_that_cannot_stand_in_a_log_is_replaced(http: httpx2.AsyncClient, given_id: str) -> None:
    answer = await http.get("/ping", headers={"X-Request-Id": given_id.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.headers["x-request-id"] not in ("", given_id)


@given(
    st.lists(st.tuples(st.binary(max_size=20).map(bytes.lower) | st.just(HEADER), st.binary(max_size=150)))
)
def test_there_is_one_id_whatever_is_sent(headers: list[tuple[bytes, bytes]]) -> None:
    own = request_id(headers)
    sent = with_id(headers, own)
    assert [value for name, value in sent if name == HEADER] == [own]
    assert [one for one in sent if one[0] != HEADER] == [one for one in headers if one[0] != HEADER]
    assert 0 < len(own) <= 128


async def test_lines_of_the_log_have_it(
    http: httpx2.AsyncClient,
    plane: FakePlane,
    app: ASGIApp,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = logging.getLogRecordFactory()
    note_requests()
    try:

        async def fails(*_: object, **__: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(plane.callers, "find", fails)
        answer = await http.get("/v2/echo/health", headers={"X-Request-Id": "mine-8"})
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] == "mine-8"
        [record] = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert record.request == "mine-8"  # type: ignore[attr-defined]
        assert REQUEST.get() == "", "it ends with its request"
    finally:
        logging.setLogRecordFactory(before)


# -- traces

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def submitted(plane: FakePlane, *, traced: bool, **headers: str) -> list[TraceSpan]:
    """The spans of a submission, of a poll that is in no trace, and of a path that is not served."""
    spans: list[TraceSpan] = []
    plane.traces = Traces(spans.append, lambda: 7.0) if traced else None
    transport = httpx2.ASGITransport(make_app(plane, ApiSettings()))
    headers |= {"Authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker") as client:
        answer = await client.post("/v2/echo/run", json={"input": {"prompt": "a swordfish"}}, headers=headers)
        assert answer.status_code == 200
        await client.get("/v2/echo/health", headers={"Authorization": headers["Authorization"]})
        await client.post("/nowhere/swordfish")
    return spans


async def test_a_submission_goes_on_in_its_callers_trace(plane: FakePlane) -> None:
    run, nowhere = await submitted(plane, traced=True, traceparent=CALLER, **{"X-Request-Id": "mine-9"})
    assert (run.name, run.own.trace, run.parent, run.failed) == (
        "POST /v2/{endpoint_id}/run",
        CALLER[3:35],
        CALLER[36:52],
        False,
    )
    assert run.attributes == {
        "http.request.method": "POST",
        "http.route": "/v2/{endpoint_id}/run",
        "http.response.status_code": 200,
        "stoker.request": "mine-9",
    }
    assert plane.submitted[0].traceparent == str(run.own)
    assert (nowhere.name, nowhere.parent, nowhere.attributes["http.response.status_code"]) == (
        "POST",
        "",
        404,
    )
    assert nowhere.own.trace != run.own.trace


async def test_without_an_export_its_parent_is_the_caller(plane: FakePlane) -> None:
    assert await submitted(plane, traced=False, traceparent=CALLER) == []
    assert plane.submitted[0].traceparent == CALLER


@pytest.mark.parametrize("traceparent", ["nonsense", CALLER + "-more", CALLER.upper()])
async def test_what_is_no_traceparent_begins_a_trace(plane: FakePlane, traceparent: str) -> None:
    run, _ = await submitted(plane, traced=True, traceparent=traceparent)
    assert (run.parent, parse_traceparent(plane.submitted[0].traceparent)) == ("", run.own)
    await submitted(plane, traced=False, traceparent=traceparent)
    assert plane.submitted[1].traceparent is None
