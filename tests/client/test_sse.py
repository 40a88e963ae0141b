"""Server-sent events from bytes."""

from stoker.client.sse import EventReader, RawEvent


def read_events(*lines: str) -> list[RawEvent]:
    return list(EventReader().feed("".join(f"{line}\n" for line in lines).encode()))


def test_data_over_several_lines_is_joined() -> None:
    assert read_events("data: a", "data:b", "") == [RawEvent("message", "", "a\nb")]


def test_an_id_stays_until_the_next_one() -> None:
    lines = ["id: 1-0", "data: a", "", "event: reset", "data: b", ""]
    assert read_events(*lines) == [RawEvent("message", "1-0", "a"), RawEvent("reset", "1-0", "b")]


def test_an_event_without_data_is_none() -> None:
    assert read_events("event: chunk", "", ": comment", "retry: 10", "") == []


def test_an_event_that_was_cut_off_is_dropped() -> None:
    assert read_events("data: whole", "", "data: half") == [RawEvent("message", "", "whole")]


def test_bytes_may_be_cut_anywhere() -> None:
    text = 'event: chunk\r\nid: 1-0\r\ndata: {"é": "\u2028"}\r\n\r\ndata: b\n\ndata: half'.encode()
    whole = [RawEvent("chunk", "1-0", '{"é": "\u2028"}'), RawEvent("message", "1-0", "b")]
    for size in range(1, len(text) + 1):
        reader = EventReader()
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        assert [event for chunk in chunks for event in reader.feed(chunk)] == whole
