"""Requests as tools send them: compressed bodies, names of other interfaces, probes by HEAD; and the sizes of
bodies, which stand in one place."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.errors import BadRequest, TooLarge
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.calls import decompressed
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.limits import INLINE_BYTES
from tests.control.http.calls.fake_plane import FakePlane

BODY = json.dumps({"input": {"text": "hi" * 500}}).encode()
PACKED = gzip.compress(BODY, mtime=0)
PAGE = Path(__file__).parents[4] / "docs" / "http-api.md"


@pytest.fixture(autouse=True)
def impatient(plane: FakePlane) -> None:
    """No job ends here: whoever waits for one gets its record at once."""
    plane.patience = 0.0


# ---- compressed


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", PACKED),
        ("GZIP", PACKED),
        ("x-gzip", PACKED),
        ("deflate", zlib.compress(BODY)),
        ("identity", BODY),
        ("", BODY),
    ],
)
@pytest.mark.parametrize("operation", ["run", "runsync"])
async def test_a_compressed_body_is_read(
    http: httpx2.AsyncClient, operation: str, encoding: str, body: bytes
) -> None:
    plain = await http.post(f"/v2/echo/{operation}", content=BODY)
    answer = await http.post(f"/v2/echo/{operation}", content=body, headers={"Content-Encoding": encoding})
    assert (plain.status_code, answer.status_code) == (200, 200)
    assert answer.json().keys() == plain.json().keys()


async def test_another_compression_is_refused_with_what_is_taken(http: httpx2.AsyncClient) -> None:
    for encoding in ("br", "zstd", "gzip, gzip"):
        answer = await http.post("/v2/echo/run", content=BODY, headers={"Content-Encoding": encoding})
        assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, deflate")
        assert answer.json()["error"] == (
            f"Content-Encoding is {encoding}; the body may be compressed with gzip, or not at all"
        )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (BODY, "says that the body is compressed, and it is not, or is damaged"),
        (PACKED[:-9], "ends early"),
        (PACKED + b"more", "goes on after its end"),
        (PACKED[:10] + b"\xff" * 20, "it is not, or is damaged"),
    ],
)
async def test_a_body_that_is_not_what_its_header_says(
    http: httpx2.AsyncClient, body: bytes, why: str
) -> None:
    answer = await http.post("/v2/echo/run", content=body, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert why in answer.json()["error"]


async def test_a_small_body_that_becomes_large_is_refused(plane: FakePlane, http: httpx2.AsyncClient) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    answer = await http.post("/v2/echo/run", content=bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    assert "it is larger once it is decompressed" in answer.json()["error"]


@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from([gzip.compress, zlib.compress]))
def test_no_more_than_the_limit_comes_out(content: bytes, limit: int, compress: object) -> None:
    body = compress(content)  # type: ignore[operator]
    if len(content) > limit:
        with pytest.raises(TooLarge):
            decompressed(body, limit)
    else:
        assert decompressed(body, limit) == content


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(BadRequest, TooLarge):
        decompressed(body, 1_000)


# ---- names that mean nothing here


@pytest.mark.parametrize("operation", ["run", "runsync"])
async def test_names_without_meaning_are_listed(http: httpx2.AsyncClient, operation: str) -> None:
    body = {
        "input": {"executionTimeoutMs": 1},
        "webhookV2": "x",
        "policy": {"executionTimeoutMs": 60_000, "ttl": 60_000, "größe": 1},
        "s3Config": None,
    }
    answer = await http.post(f"/v2/echo/{operation}", json=body)
    assert answer.status_code == 200
    assert answer.headers["stoker-ignored"] == "webhookV2, policy.executionTimeoutMs, policy.gr%C3%B6%C3%9Fe"
    refused = await http.post(f"/v2/echo/{operation}", json=body, headers={"Prefer": "handling=strict"})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith(
        "webhookV2 is not a known field; policy.executionTimeoutMs is not a known field"
    )


async def test_an_answer_of_known_names_has_no_such_header(http: httpx2.AsyncClient) -> None:
    for body in ({"input": {"a": 1}}, {"input": {}, "policy": {"ttl": 60_000}, "webhook": None}):
        answer = await http.post("/v2/echo/run", json=body, headers={"Prefer": "handling=strict"})
        assert (answer.status_code, "stoker-ignored" in answer.headers) == (200, False)


# ---- probes


async def test_a_probe_may_ask_for_the_head_alone(http: httpx2.AsyncClient) -> None:
    assert (await http.head("/ping")).status_code == 200
    assert (await http.get("/ping")).json() == {"status": "ok"}
    assert (await http.post("/ping")).headers["allow"] == "GET, HEAD"


# ---- sizes


def test_the_sizes_that_are_documented_are_those_that_hold(plane: FakePlane) -> None:
    settings = ApiSettings()
    limits = (settings.run_body_bytes, settings.runsync_body_bytes, settings.file_bytes)
    whole = [f"{limit >> 20} MiB" for limit in limits]
    assert [limit % (1 << 20) for limit in limits] == [0, 0, 0]
    document = make_app(plane).app.openapi()
    for operation, size in zip(("run", "runsync", "files"), whole, strict=True):
        body = document["paths"][f"/v2/{{endpoint_id}}/{operation}"]["post"]["requestBody"]
        assert f"at most {size}" in body["description"].lower().replace("mib", "MiB")
    assert f"{INLINE_BYTES >> 20} MiB" in str(document["components"]["schemas"]["EndedRecord"])
    page = PAGE.read_text()
    assert f"| body of `/run`, of `/runsync`, of `/files` | {', '.join(whole)} |" in page
    assert f"above {INLINE_BYTES >> 20} MiB the record has" in page
    assert not re.search(r"\b(10|20|60) MB", page)


@pytest.mark.parametrize(("operation", "limit"), [("run", 10 << 20), ("runsync", 20 << 20)])
async def test_a_body_of_just_the_limit_is_taken(
    http: httpx2.AsyncClient, operation: str, limit: int
) -> None:
    frame = len(b'{"input":{"x":""}}')
    for over in (0, 1):
        body = b'{"input":{"x":"%s"}}' % (b"a" * (limit - frame + over))
        answer = await http.post(f"/v2/echo/{operation}", content=body)
        assert answer.status_code == (413 if over else 200)
