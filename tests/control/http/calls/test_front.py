"""`X-Request-Id`: a caller's own is given back, another is made, and lines of the log have it."""

from __future__ import annotations

import logging

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from stoker.control.http.calls.front import HEADER, REQUEST, note_requests, request_id, with_id
from tests.control.http.calls.fake_plane import FakePlane


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
