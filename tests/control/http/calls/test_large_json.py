"""JSON that would hold the loop: it is read beside it, and what would become too many objects is refused."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.control.errors import BadRequest
from stoker.control.http.calls import jobs
from stoker.control.large_json import LargeJson
from stoker.control.rules import json_size
from stoker.control.rules.json_size import refuse_many_parts
from tests.control.http.calls.fake_plane import FakePlane
from tests.profiles import examples

MANY = {
    "keys": b",".join(b'"k%d":1' % n for n in range(800_000)),
    "objects": b'"a":[' + b",".join([b'{"a":{}}'] * 600_000) + b"]",
    "lists": b'"a":[' + b",".join([b"[]"] * 3_000_000) + b"]",
    "values": b'"a":[' + b",".join([b"1"] * 4_500_000) + b"]",
}


@pytest.mark.parametrize("path", ["run", "runsync", "openai/v1/chat/completions"])
@pytest.mark.parametrize("of", MANY)
async def test_a_body_of_very_many_parts_is_refused_before_it_is_read(
    http: httpx2.AsyncClient, plane: FakePlane, path: str, of: str
) -> None:
    body = b'{"input":{%b}}' % MANY[of]
    refused = await http.post(f"/v2/echo/{path}", content=body)
    assert refused.status_code == 400
    assert "at most; it has more" in refused.text
    assert plane.submitted == []


async def test_a_form_that_is_json_likewise(http: httpx2.AsyncClient) -> None:
    with pytest.raises(BadRequest, match="at most; it has more"):
        await LargeJson().read(json.loads, b"{%b}" % MANY["keys"])


async def test_a_large_body_is_read_in_a_thread_and_a_small_one_is_not(
    http: httpx2.AsyncClient, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    parse = jobs.parse_submission

    def noted(body: bytes) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return parse(body)

    monkeypatch.setattr(jobs, "parse_submission", noted)
    for size in (1_000, 300_000):
        response = await http.post("/v2/echo/run", json={"input": {"text": "x" * size}})
        assert response.status_code == 200
    assert (threads, len(plane.submitted)) == ([True, False], 2)


async def test_large_bodies_are_read_one_at_a_time() -> None:
    reader, now, most = LargeJson(), 0, 0
    both = threading.Barrier(2)

    def parse(_: bytes) -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        with pytest.raises(threading.BrokenBarrierError):  # a second one would come, too
            both.wait(0.1)
        both.reset()
        now -= 1

    await asyncio.gather(*(reader.read(parse, b" " * 300_000) for _ in range(3)))
    assert most == 1


VALUES = st.recursive(
    st.none() | st.integers() | st.text('\\"[]{}:,ab', max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text('\\":{,', max_size=5), inner, max_size=5)
    ),
    max_leaves=40,
)


def parts_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(parts_of, value.values()))
    return 1 + sum(map(parts_of, value)) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 9))
@settings(max_examples=examples(300))
def test_what_stands_in_strings_is_not_counted(value: Any, step: int) -> None:
    parts, body = parts_of(value), json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "COUNTED_BYTES", step)
        refuse_many_parts(body, parts)
        if parts:
            with pytest.raises(BadRequest):
                refuse_many_parts(body, parts - 1)


@given(st.binary(max_size=200), st.integers(1, 9))
@settings(max_examples=examples(200))
def test_any_bytes_can_be_counted(body: bytes, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "COUNTED_BYTES", step)
        refuse_many_parts(body)
