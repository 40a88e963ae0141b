"""What becomes of a handler's output and of its frames' claims."""

from __future__ import annotations

import json
import os

import pytest

from stoker.agent import outputs
from stoker.agent.handler_news import (
    BrokenPromise,
    failure_of,
    file_of,
    metrics_of,
)
from stoker.agent.seams import FileRefused
from stoker.worker.frames import Frame


def test_an_output_that_nothing_is_added_to_passes_as_it_came():
    odd = b'{"a" : 1.0, "b":[ ]}'
    assert outputs.finished(odd, {}, None) is odd
    assert outputs.finished(None, {0: "u"}, 1.0) is None


def test_marks_become_urls_wherever_they_are():
    given = {"a": {"$file": 1}, "b": [{"$file": 0}, {"$file": 0, "x": 1}], "c": "$file"}
    placed = outputs.place(given, {0: "u0", 1: "u1"})
    assert placed == {"a": "u1", "b": ["u0", {"$file": 0, "x": 1}], "c": "$file"}
    assert outputs.marks(given) == {0, 1}


def test_a_mark_without_its_file_is_a_sentence():
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


@pytest.mark.parametrize("fields", [{}, {"n": -1}, {"n": "1"}, {"n": True}, {"n": 1.5}, {"n": None}])
def test_a_number_is_a_number(fields):
    with pytest.raises(ValueError, match="n "):
        Frame("chunk", fields).number("n")


@pytest.mark.parametrize("metrics", [[1], {"pixel": -1}, {"pixel": 1.5}, {"pixel": "1"}, {"pixel": True}])
def test_a_quantity_is_a_whole_number(metrics):
    with pytest.raises(ValueError, match=r"metrics|quantity"):
        metrics_of(Frame("done", {"metrics": metrics}))


def test_a_failure_is_cut_to_size():
    error, retryable = failure_of(Frame("failed", {"error": "x" * 100_000, "retryable": "yes"}), ())
    assert len(error) == 32 * 1024
    assert retryable is False


def _fd() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_file_that_is_let_pass_stays_open():
    fd = _fd()
    file = file_of(Frame("file", {"n": 2, "name": "a.png", "media_type": None}, fd=fd), 0, lambda fd: None)
    assert (file.n, file.name, file.media_type) == (2, "a.png", "application/octet-stream")
    file.close()
    assert not _is_open(fd)


def refuse(fd: int) -> None:
    raise FileRefused("a device is not a file")


def test_a_file_that_is_refused_is_closed():
    for frame, held, error in (
        ({"n": 0}, 0, BrokenPromise),
        ({"n": -1}, 0, ValueError),
        ({"n": 0}, 1000, BrokenPromise),
    ):
        fd = _fd()
        with pytest.raises(error):
            file_of(Frame("file", frame, fd=fd), held, refuse)
        assert not _is_open(fd)


def test_a_file_frame_without_a_file():
    with pytest.raises(ValueError, match="descriptor"):
        file_of(Frame("file", {"n": 0}), 0, refuse)
