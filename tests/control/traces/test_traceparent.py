"""Any `traceparent` is read as the specification says, and a job's spans have ids that all agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.traces.traceparent import Traceparent, kept_traceparent, parse_traceparent

KNOWN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def hexadecimal(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


PARENTS = st.builds(Traceparent, hexadecimal(32), hexadecimal(16), st.booleans())


@given(PARENTS)
def test_what_is_written_is_read(parent: Traceparent) -> None:
    assert parse_traceparent(str(parent)) == parent
    assert kept_traceparent(str(parent)) == str(parent)


@given(st.text(max_size=80) | st.text(alphabet="0123456789abcdef-", max_size=60))
def test_any_text_is_taken_or_left(text: str) -> None:
    kept = kept_traceparent(text)
    assert kept is None or (text.startswith(kept[3:52], 3) and kept_traceparent(kept) == kept)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        KNOWN.upper(),
        KNOWN + " ",
        KNOWN + "\n",
        KNOWN + "-more",
        KNOWN[3:],
        "ff" + KNOWN[2:],
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    ],
)
def test_what_is_not_valid_is_left(text: str | None) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_may_say_more_and_other_flags_are_dropped() -> None:
    assert kept_traceparent("cc" + KNOWN[2:] + "-more") == KNOWN
    assert kept_traceparent(KNOWN[:-2] + "03") == KNOWN
    assert kept_traceparent(KNOWN[:-2] + "02") == KNOWN[:-2] + "00"


@given(PARENTS, st.text(max_size=8), st.text(max_size=8))
def test_children(parent: Traceparent, one: str, other: str) -> None:
    child = parent.child(one)
    assert parse_traceparent(str(child)) == child == parent.child(one)
    assert (child.trace, child.sampled) == (parent.trace, parent.sampled)
    assert child.span != parent.span
    assert (child == parent.child(other)) == (one == other)
