"""What is posted and handed over as text, and the environment of a protocol worker."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.workers.sdk_programs.bodies import (
    Failed,
    Finished,
    NotAnObject,
    PartialOutput,
    Progressed,
    job_text,
    jobs_text,
    read,
    read_done,
    read_partial,
    stops_text,
    too_large,
)
from stoker.agent.workers.sdk_programs.environment import protocol_environment
from stoker.wire.messages import Device, WorkerSpec

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


NAMES = ("output", "status", "error", "stopPod")


def members(text: bytes) -> dict[str, bytes]:
    found = read(text)
    return {name: part for name in NAMES if (part := bytes(getattr(found, name)))}


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(), VALUES, max_size=6), st.sampled_from([None, 1]))
def test_members_are_what_json_reads_and_their_text_is_untouched(
    fields: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps(fields, indent=indent, ensure_ascii=False).encode()
    found = members(text)
    expected = {name: value for name, value in json.loads(text).items() if name in NAMES}
    assert {name: json.loads(part) for name, part in found.items()} == expected
    assert all(part in text for part in found.values())


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0 \\u', max_size=30).map(str.encode))
def test_any_body_is_read_or_fails_with_a_reason(body: bytes) -> None:
    try:
        expected = json.loads(body.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        expected = None
    if isinstance(expected, dict):
        known = {name: value for name, value in expected.items() if name in NAMES}
        assert {name: json.loads(part) for name, part in members(body).items()} == known
    else:
        with pytest.raises(NotAnObject, match=r"is not|is nested"):
            read(body)


@pytest.mark.parametrize(
    ("body", "post"),
    [
        (b'{"output": {"a": 1.50}}', Finished(b'{"a": 1.50}')),
        (b'{"output": "hello"}', Finished(b'"hello"')),
        (b'{"output": false}', Finished(b"false")),
        (b'{"output": null}', Finished(b"null")),
        (b"{}", Finished(None)),
        (b'{"output": {"x": 1}, "error": "bad thing"}', Failed("bad thing", b'{"x": 1}')),
        (b'{"error": {"code": 5}}', Failed('{"code": 5}')),
        (b'{"error": "{\\"error_type\\": \\"X\\"}"}', Failed('{"error_type": "X"}')),
        (b'{"output": {"y": 2}, "stopPod": true}', Finished(b'{"y": 2}', retire=True)),
        (b'{"error": "bad", "stopPod": true}', Failed("bad", retire=True)),
        (b'{"output": []}', Finished(b"[]")),
        (b'{"output": [1, 2]}', Finished(b"[1, 2]")),
        (b'{"status": "IN_PROGRESS", "output": {"step": 1}}', Progressed(b'{"step": 1}')),
        (b'{"status": "IN_PROGRESS"}', Progressed(b"null")),
        ('{"output": "é \U0001f600"}'.encode(), Finished('"é \U0001f600"'.encode())),
    ],
)
def test_every_row_of_job_done(body: bytes, post: object) -> None:
    assert read_done(body) == post


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"output": NaN}', "NaN is not a JSON value"),
        (b'{"output": 1', "cut short"),
        (b"[1]", "Expected `object`"),
        (b'{"output": [1, -Infinity]}', "Infinity is not a JSON value"),
        (b'{"output": "\\ud800"}', "half of a surrogate pair"),
        (b"", "cut short"),
        (b'{"output": "\xff"}', "not UTF-8"),
        (b'{"output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"output": 1} x', "trailing characters"),
    ],
)
def test_what_cannot_be_read_fails_with_a_reason(body: bytes, reason: str) -> None:
    for reads, what in ((read_done, "a result"), (read_partial, "a partial output")):
        post = reads(body)
        assert isinstance(post, Failed)
        assert post.error.startswith(f"the worker posted {what} that is ")
        assert reason in post.error


@pytest.mark.parametrize("part", [b"[],", b"1.5,"])
def test_no_values_are_made_of_what_is_passed_on(part: bytes) -> None:
    """They would take thirty times the memory of their text, and hold the agent up."""
    size = 6_000_000
    body = b'{"output": [' + part * (size // len(part)) + b"1]}"
    tracemalloc.start()
    try:
        assert isinstance(read_done(body), Finished)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size


def test_a_chunk_is_its_output() -> None:
    assert read_partial(b'{"output": "a"}') == PartialOutput(b'"a"')
    assert read_partial(b"{}") == PartialOutput(b"null")


def test_too_large_names_size_and_limit() -> None:
    assert "70000000 bytes, which is over the limit of 67108864" in too_large(70_000_000).error


def test_jobs_as_they_are_handed_over() -> None:
    one = job_text("j1", b'{"prompt": 1.0}', {"s3Config": {"accessId": "é"}})
    assert json.loads(one) == {"id": "j1", "input": {"prompt": 1.0}, "s3Config": {"accessId": "é"}}
    assert b'{"prompt": 1.0}' in one, "as the caller wrote it"
    assert json.loads(job_text("j2", b"", {})) == {"id": "j2", "input": None}
    assert json.loads(jobs_text((one,), many=False))["id"] == "j1"
    assert [job["id"] for job in json.loads(jobs_text((one, one), many=True))] == ["j1", "j1"]
    assert json.loads(stops_text(("j1", ""))) == {"jobsToStop": ["j1", ""]}


SPEC = WorkerSpec("w1", "e1", 1, "/handlers", devices=("GPU-1",), kind="protocol", command=("python", "h.py"))


def test_the_environment_of_the_protocol() -> None:
    made = protocol_environment(SPEC, Device("GPU-1", "gpu", "NVIDIA H200"), "http://127.0.0.1:9", "key")
    assert made == {
        "RUNPOD_WEBHOOK_GET_JOB": "http://127.0.0.1:9/v2/e1/job-take/$ID?gpu=NVIDIA+H200",
        "RUNPOD_WEBHOOK_POST_OUTPUT": "http://127.0.0.1:9/v2/e1/job-done/$RUNPOD_POD_ID/$ID?gpu=NVIDIA+H200",
        "RUNPOD_WEBHOOK_POST_STREAM": "http://127.0.0.1:9/v2/e1/job-stream/$RUNPOD_POD_ID/$ID?gpu=NVIDIA+H200",
        "RUNPOD_WEBHOOK_PING": "http://127.0.0.1:9/v2/e1/ping/$RUNPOD_POD_ID?gpu=NVIDIA+H200",
        "RUNPOD_PING_INTERVAL": "10000",
        "RUNPOD_AI_API_KEY": "key",
        "RUNPOD_POD_ID": "w1",
        "RUNPOD_POD_HOSTNAME": "w1",
        "RUNPOD_ENDPOINT_ID": "e1",
        "RUNPOD_GPU_COUNT": "1",
        "RUNPOD_GPU_TYPE_ID": "NVIDIA H200",
        "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
        "RUNPOD_LOG_LEVEL": "INFO",
        "PYTHONUNBUFFERED": "1",
    }


def test_what_is_declared_wins_but_for_the_protocol_itself() -> None:
    declared = {
        "RUNPOD_DEBUG_LEVEL": "DEBUG",
        "RUNPOD_AI_API_KEY": "mine",
        "TOKEN": "t",
        "PYTHONUNBUFFERED": "",
    }
    spec = WorkerSpec("w1", "e1", 1, "/h", env=declared, volume="vol1")
    made = protocol_environment(spec, Device("cpu-0", "cpu", "a processor"), "http://127.0.0.1:9", "key")
    assert (made["TOKEN"], made["PYTHONUNBUFFERED"], made["RUNPOD_AI_API_KEY"]) == ("t", "", "key")
    assert "RUNPOD_LOG_LEVEL" not in made
    assert made["RUNPOD_SKIP_GPU_CHECK"] == "true"
    assert made["RUNPOD_GPU_COUNT"] == "0"
    assert made["RUNPOD_VOLUME_ID"] == "vol1"
    assert "RUNPOD_GPU_TYPE_ID" not in made
