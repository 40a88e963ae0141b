"""What becomes of a handler's output, and which files and chunks it may hand over."""

from __future__ import annotations

import json

import pytest

from stoker.agent import worker_frames as said
from stoker.agent.interfaces import FileRefused
from stoker.agent.jobs.attempts.worker_events import (
    FILES_BYTES_MAX,
    TEXT_MAX,
    HandlerViolation,
    checked_chunk,
    checked_file,
)
from stoker.agent.jobs.uploads import outputs
from stoker.agent.jobs.uploads.payloads import HandedFile
from stoker.wire.messages import AttemptKey

KEY = AttemptKey("j1", 1)


def test_an_output_that_nothing_is_added_to_passes_as_it_came():
    odd = b'{"a" : 1.0, "b":[ ]}'
    assert outputs.finished(odd, {}, None) is odd
    assert outputs.finished(None, {0: "u"}, 1.0) is None


def test_marks_become_urls_wherever_they_are():
    job_input = {"a": {"$file": 1}, "b": [{"$file": 0}, {"$file": 0, "x": 1}], "c": "$file"}
    placed = outputs.with_urls(job_input, {0: "u0", 1: "u1"})
    assert placed == {"a": "u1", "b": ["u0", {"$file": 0, "x": 1}], "c": "$file"}
    assert outputs.marks(job_input) == {0, 1}


def test_a_mark_without_its_file_is_an_error_with_a_reason():
    with pytest.raises(outputs.BadOutput, match="file 3"):
        outputs.finished(b'[{"$file": 3}]', {0: "u"}, None)
    with pytest.raises(outputs.BadOutput, match="not JSON"):
        outputs.finished(b"{", {0: "u"}, None)


def test_the_cost_goes_into_objects_only():
    assert json.loads(outputs.finished(b'{"a": 1}', {}, 0.02097152)) == {"a": 1, "cost": 0.02097152}
    assert json.loads(outputs.finished(b"[1]", {}, 0.5)) == [1]
    assert b"0.02097152" in outputs.finished(b'{"a": 1}', {}, 0.02097152)


def test_a_text_about_marks_is_no_mark():
    assert not outputs.has_marks(json.dumps('{"$file": 0}').encode())
    assert not outputs.has_marks(b'["$file"]')
    assert outputs.has_marks(b'[{"$file": 0}]')
    assert not outputs.has_marks(b'{"$file": "a name"}')


def a_file(n: int, fd: int = 99) -> said.File:
    return said.File(KEY, n, "a.png", "image/png", fd)


def held(*sizes: int) -> dict[int, HandedFile]:
    return {n: HandedFile(n, 99, "x", "y/z", size) for n, size in enumerate(sizes)}


def test_a_file_that_is_let_pass_keeps_its_descriptor_and_size() -> None:
    assert checked_file(a_file(1), held(5), lambda fd: 7) == HandedFile(1, 99, "a.png", "image/png", 7)


def refuse(fd: int) -> int:
    raise FileRefused("x lies elsewhere")


@pytest.mark.parametrize("n", [0, 2, 1000])
def test_files_are_counted_without_a_gap(n: int) -> None:
    with pytest.raises(said.BrokenProtocol, match="came instead of 1"):
        checked_file(a_file(n), held(5), lambda fd: 7)


def test_what_a_job_may_not_hand_over_is_an_error_with_a_reason() -> None:
    with pytest.raises(HandlerViolation, match="x lies elsewhere"):
        checked_file(a_file(0), {}, refuse)
    with pytest.raises(HandlerViolation, match="at most 1000 files"):
        checked_file(a_file(1000), held(*[1] * 1000), lambda fd: 7)
    with pytest.raises(HandlerViolation, match="at most 256 GiB together"):
        checked_file(a_file(1), held(FILES_BYTES_MAX - 6), lambda fd: 7)


def test_a_chunk_in_a_checked_file_a_terabyte_is_refused() -> None:
    large = said.Chunk(KEY, 0, b"", 99)
    with pytest.raises(HandlerViolation, match="1099511627776 bytes is over the limit of"):
        checked_chunk(large, 0, storable=True, check=lambda fd: 1 << 40)
    assert checked_chunk(large, 0, storable=True, check=lambda fd: TEXT_MAX) == HandedFile(
        0, 99, "chunk.json", "application/json", TEXT_MAX
    )


def test_chunks_are_counted_without_a_gap() -> None:
    with pytest.raises(said.BrokenProtocol, match="chunk 2 of job j1 came instead of 1"):
        checked_chunk(said.Chunk(KEY, 2, b"1", None), 1, storable=True, check=refuse)
