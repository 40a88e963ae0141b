"""The last lines, however the bytes were cut on their way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.host.logs.tail import KEPT, LINE_MAX, Line, LogTail, TailListener


def texts(listener: TailListener) -> tuple[str, ...]:
    return tuple(line.text for line in listener.after(0, whole=False)[1])


@given(st.lists(st.binary(max_size=30), max_size=30))
def test_chunks_make_the_same_lines_as_the_whole(chunks: list[bytes]) -> None:
    tail, at_once = LogTail(), LogTail()
    for chunk in chunks:
        tail.feed(chunk)
    at_once.feed(b"".join(chunks))
    tail.close()
    at_once.close()
    assert tail.lines == at_once.lines


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r"), min_size=1), max_size=200))
def test_the_last_lines_are_kept(lines: list[str]) -> None:
    tail = LogTail()
    tail.feed("\n".join(lines).encode())
    tail.close()
    assert tail.lines == tuple(lines[-KEPT:])


def test_a_long_line_is_cut_and_its_rest_is_no_line() -> None:
    tail = LogTail()
    for _ in range(3):
        tail.feed(b"x" * LINE_MAX)
    tail.feed(b"y\nnext\r\n")
    assert tail.lines == ("x" * LINE_MAX, "next")


def test_of_a_line_that_is_written_over_it_is_the_last_writing() -> None:
    """A progress bar is one line, and may be longer than any that is kept."""
    tail = LogTail()
    listener = tail.listen()
    tail.feed(b"before\n")
    for step in range(2000):
        tail.feed(b"\r%3d%%|######    |" % (step // 20))
    assert texts(listener) == ("before", " 99%|######    |")
    tail.feed(b"\r100%|##########|\r")
    assert texts(listener) == ("before", "100%|##########|")
    tail.feed(b"\nafter\r\n")
    assert tail.lines == ("before", "100%|##########|", "after")


@given(
    st.lists(st.sampled_from([b"a\n", b"b", b"c\nd\n", b"\n", b"e\r\nf", b"\r", b"g\rh"]), max_size=400),
    st.data(),
)
def test_a_listener_has_what_a_new_one_would_have_kept(chunks: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(chunks)))
    tail, fresh = LogTail(), LogTail()
    for chunk in chunks[:cut]:
        tail.feed(chunk)
    listener = tail.listen()
    assert texts(listener) == ()
    for chunk in chunks[cut:]:
        tail.feed(chunk)
        fresh.feed(chunk)
    reported = texts(listener)
    fresh.close()
    assert reported[-KEPT:] == fresh.lines
    tail.close()
    assert texts(listener) == fresh.lines


def test_a_lines_time_is_that_at_which_its_last_part_was_read() -> None:
    now = 1000.0
    tail = LogTail(lambda: now)
    listener = tail.listen()
    tail.feed(b"one\ntw")
    now = 1002.5
    tail.feed(b"o\nthr")
    open_line = Line(1_002_500, "thr")
    assert listener.after(0) == (0, (Line(1_000_000, "one"), Line(1_002_500, "two")))
    assert listener.after(2, whole=False) == (2, (open_line,))
    now = 1004.0
    tail.close()
    assert listener.after(2) == (2, (open_line,))
