"""Errors become clean text of a bounded size that says whose fault it is and where."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker import Cancelled, HandlerError, RetryableError
from stoker.worker.errors import ERROR_MAX, clean, describe, is_retryable
from stoker.worker.frames import HEADER_MAX, Frame, encode


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_ordinary_exception_reports_type_message_and_place() -> None:
    text = describe(raised(ValueError("seven is too many")))
    first, *rest = text.splitlines()
    assert first == "ValueError: seven is too many"
    assert any("in raised" in line for line in rest)


def test_a_handlers_own_error_is_its_message_and_nothing_else() -> None:
    assert describe(raised(HandlerError("the prompt names nobody"))) == "the prompt names nobody"
    assert describe(HandlerError("")) == "HandlerError"


def test_a_cancel_says_why() -> None:
    assert (describe(Cancelled("asked")), describe(Cancelled())) == ("cancelled: asked", "cancelled")
    assert not isinstance(Cancelled(), Exception)


def test_what_may_be_tried_again() -> None:
    assert is_retryable(RetryableError("busy"))
    assert is_retryable(HandlerError("busy", retryable=True))
    assert not is_retryable(HandlerError("no"))
    assert not is_retryable(ValueError("no"))


def test_an_exception_that_cannot_be_shown() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe(raised(Broken())).startswith("Broken: (its message cannot be shown)\n")


def test_a_call_of_sys_exit_is_named() -> None:
    assert describe(SystemExit(7)).startswith("SystemExit: the handler called sys.exit(7)")


@given(st.text(st.characters(), max_size=200).map(lambda text: text * 500))
def test_any_text_fits_a_header_and_reads_as_unicode(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned.encode()) <= ERROR_MAX
    assert len(json.dumps(cleaned)) < HEADER_MAX - 1024
    encode(Frame("failed", {"job": "j" * 200, "attempt": 1, "error": cleaned, "retryable": False}))


def test_short_clean_text_stays_as_it_is() -> None:
    assert clean("a\tb\n—é") == "a\tb\n—é"
    assert clean("a\x00b\x1b[31m\udcff") == "a\ufffdb\ufffd[31m?"


def test_a_text_is_cut_from_one_byte_too_many() -> None:
    assert clean("x" * ERROR_MAX) == "x" * ERROR_MAX
    assert "…" in clean("x" * (ERROR_MAX + 1))


def test_a_long_text_loses_its_middle() -> None:
    text = clean("first line\n" + "é" * ERROR_MAX + "\nlast line")
    assert text.startswith("first line\né")
    assert text.endswith("é\nlast line")
    assert "\n…\n" in text


@pytest.mark.parametrize("limit", [20, 21, 22])
def test_a_cut_between_the_bytes_of_a_letter_leaves_no_half_letter(limit: int) -> None:
    assert set(clean("é" * 40, limit)) == set("é\n…")
