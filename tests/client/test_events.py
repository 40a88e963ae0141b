"""Following a job's events over connections that break: nothing is lost, nothing is given twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from stoker.client import ClientError, Event, NotFound, Unreachable
from tests.client.service import Broken, Service, refused

END = 'event: end\ndata: {"id": "j", "status": "COMPLETED"}\n\n'
CUT = httpx2.ReadError("connection reset")

Connect = Callable[..., tuple[Any, Service]]


def chunk(number: str, value: int) -> str:
    return f'event: chunk\nid: {number}\ndata: {{"output": {value}}}\n\n'


def progress(value: int) -> str:
    return f'event: progress\ndata: {{"output": {value}}}\n\n'


def reset(attempt: int) -> str:
    return f'event: reset\nid: {attempt}--1\ndata: {{"attempt": {attempt}}}\n\n'


def says(*chunks: str, error: Exception | None = None) -> httpx2.Response:
    return httpx2.Response(200, stream=Broken(*chunks, error=error))


def values_of(events: list[Event]) -> list[Any]:
    """Kinds with their plain values."""
    return [
        event.kind if event.kind == "end" else (event.kind, next(iter(event.value.values())))
        for event in events
    ]


def last_ids(service: Service) -> list[str | None]:
    return [request.headers.get("Last-Event-ID") for request in service.requests]


def test_events_are_read_as_they_come(connect: Connect) -> None:
    text = 'event: chunk\nid: 1-4\ndata: {"a": 1}\n\n: a comment\nevent: end\ndata: null\n\n'
    client, service = connect(says(text))
    assert list(client.events("echo", "j", after="1-3")) == [
        Event("chunk", "1-4", {"a": 1}),
        Event("end", "1-4", None),
    ]
    assert service.requests[0].headers["Last-Event-ID"] == "1-3"
    assert service.requests[0].headers["Accept"] == "text/event-stream"
    assert service.requests[0].extensions["timeout"]["read"] == 60.0


def test_a_broken_connection_is_resumed_where_it_broke(connect: Connect) -> None:
    half = chunk("1-2", 2)[:20]
    client, service = connect(
        says(chunk("1-0", 0), chunk("1-1", 1), half, error=CUT), says(chunk("1-2", 2), END)
    )
    assert values_of(list(client.events("echo", "j"))) == [("chunk", 0), ("chunk", 1), ("chunk", 2), "end"]
    assert last_ids(service) == [None, "1-1"]
    assert service.slept == [0.5]


def test_a_stream_that_ends_without_the_end_is_resumed(connect: Connect) -> None:
    client, service = connect(says(chunk("1-0", 0)), says(END))
    assert values_of(list(client.events("echo", "j"))) == [("chunk", 0), "end"]
    assert last_ids(service) == [None, "1-0"]


def test_nothing_is_returned_twice_even_if_the_service_repeats_it(connect: Connect) -> None:
    client, _ = connect(
        says(chunk("1-0", 0), progress(1), chunk("1-1", 1), error=CUT),
        says(chunk("1-0", 0), progress(1), chunk("1-1", 1), progress(2), chunk("1-2", 2), END),
    )
    assert values_of(list(client.events("echo", "j"))) == [
        ("chunk", 0),
        ("progress", 1),
        ("chunk", 1),
        ("progress", 2),
        ("chunk", 2),
        "end",
    ]


def test_a_reset_is_passed_on_and_the_new_attempt_begins_anew(connect: Connect) -> None:
    client, service = connect(
        says(chunk("1-0", 0), progress(1), reset(2), error=CUT), says(progress(1), chunk("2-0", 0), END)
    )
    assert values_of(list(client.events("echo", "j"))) == [
        ("chunk", 0),
        ("progress", 1),
        ("reset", 2),
        ("progress", 1),
        ("chunk", 0),
        "end",
    ]
    assert last_ids(service) == [None, "2--1"]


def test_the_tries_are_bounded_and_the_pauses_grow(connect: Connect) -> None:
    client, service = connect(says(chunk("1-0", 0), error=CUT), *[httpx2.ConnectError("refused")] * 5)
    events = client.events("echo", "j")
    assert next(events).kind == "chunk"
    with pytest.raises(Unreachable, match="no answer from https://stoker: refused"):
        next(events)
    assert service.slept == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert service.all_used()


def test_connections_that_bring_nothing_new_do_not_go_on_for_ever(connect: Connect) -> None:
    client, service = connect(*[says(progress(1), progress(2)) for _ in range(6)])
    with pytest.raises(Unreachable, match="the events of j broke off before its end"):
        list(client.events("echo", "j"))
    assert service.all_used()


def test_whatever_is_new_begins_the_count_of_tries_anew(connect: Connect) -> None:
    client, service = connect(*[says(chunk(f"1-{n}", n), error=CUT) for n in range(9)], says(END))
    assert len(list(client.events("echo", "j"))) == 10
    assert service.slept == [0.5] * 9


def test_a_connection_that_held_for_long_was_a_good_one(connect: Connect) -> None:
    client, service = connect(*[says(": still here\n\n", error=CUT) for _ in range(7)], says(END), resends=3)
    events = client.events("echo", "j")
    received = Broken.__iter__

    def slow(self: Broken) -> Any:
        service.now += 12.0
        return received(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broken, "__iter__", slow)
        assert values_of(list(events)) == ["end"]
    assert service.slept == [0.5] * 7


def test_a_stream_that_never_opened_is_tried_as_often_as_any_call(connect: Connect) -> None:
    client, service = connect(*[httpx2.ReadError("reset")] * 2, resends=1)
    with pytest.raises(Unreachable, match="reset"):
        list(client.events("echo", "j"))
    assert service.slept == [0.5]


def test_it_reconnects_after_retry_after(connect: Connect) -> None:
    client, service = connect(
        says(chunk("1-0", 0), error=CUT), refused(503, "stopping", Retry_After="2"), says(END)
    )
    assert values_of(list(client.events("echo", "j"))) == [("chunk", 0), "end"]
    assert service.slept == [0.5, 2.0]


def test_a_job_that_is_gone_meanwhile_is_reported(connect: Connect) -> None:
    client, _ = connect(says(chunk("1-0", 0)), refused(404, "no job j"))
    events = client.events("echo", "j")
    next(events)
    with pytest.raises(NotFound, match="no job j"):
        next(events)


def test_whoever_leaves_early_closes_the_connection(connect: Connect) -> None:
    answer = says(chunk("1-0", 0), chunk("1-1", 1))
    client, _ = connect(answer)
    events = client.events("echo", "j")
    next(events)
    events.close()
    assert answer.is_closed


def test_characters_that_end_a_line_elsewhere_stay_in_their_value(connect: Connect) -> None:
    text = 'event: chunk\nid: 1-0\ndata: {"output": "a\u2028b\x85c"}\n\n' + END
    middle = len(text) // 2
    client, _ = connect(says(text[:middle], text[middle:]))
    assert next(client.events("echo", "j")).value == {"output": "a\u2028b\x85c"}


@pytest.mark.parametrize("text", ["event: end\ndata: {half\n\n", "event: chunk\nid: seven\ndata: {}\n\n"])
def test_events_of_another_shape_are_reported(connect: Connect, text: str) -> None:
    client, _ = connect(says(text))
    with pytest.raises(ClientError, match=r"not JSON|attempt-number; got 'seven'"):
        list(client.events("echo", "j"))


def line(number: str, text: str) -> str:
    return f'event: log\nid: {number}\ndata: {{"line": "{text}"}}\n\n'


def test_the_log_of_a_worker_is_followed_over_a_break_too(connect: Connect) -> None:
    gone = 'event: end\ndata: {"id": "w"}\n\n'
    client, service = connect(
        says(line("0-0", "a"), error=CUT), says(line("0-0", "a"), line("0-1", "b"), gone)
    )
    assert values_of(list(client.worker_log("echo", "w", follow=True))) == [("log", "a"), ("log", "b"), "end"]
    assert last_ids(service) == [None, "0-0"]
    assert [request.url.path for request in service.requests] == ["/v1/endpoints/echo/workers/w/logs"] * 2


def test_the_log_of_a_pod_is_followed_over_a_break_too(connect: Connect) -> None:
    """Its events have no name, and ids of a time and a number; it has no end but that of the service."""

    def printed(number: int, text: str) -> str:
        ts = f"2026-11-22T08:00:00.{number:03}000000Z"
        return f'id: {ts}/{number}\ndata: {{"line": "{text}", "ts": "{ts}"}}\n\n'

    client, service = connect(
        says(printed(9, "a"), error=CUT), says(printed(9, "a"), printed(10, "b"), printed(11, "c"))
    )
    lines = client.pod_log("p/1")
    assert values_of([next(lines) for _ in range(3)]) == [("log", "a"), ("log", "b"), ("log", "c")]
    lines.close()
    assert last_ids(service) == [None, "2026-11-22T08:00:00.009000000Z/9"]
    assert service.request_lines() == ["GET /v2/pods/p%2F1/logs"] * 2


def test_logs_are_followed_over_a_break_to_their_end(connect: Connect) -> None:
    skipped = 'event: skipped\nid: 1-6\ndata: {"lines": 5}\n\n'
    client, service = connect(
        says(line("1-0", "a"), line("1-1", "b"), error=CUT),
        says(line("1-1", "b"), skipped, line("1-7", "c"), reset(2), line("2-0", "d"), END),
    )
    assert values_of(list(client.logs("echo", "j", follow=True))) == [
        ("log", "a"),
        ("log", "b"),
        ("skipped", 5),
        ("log", "c"),
        ("reset", 2),
        ("log", "d"),
        "end",
    ]
    assert last_ids(service) == [None, "1-1"]
    assert [request.url.path for request in service.requests] == ["/v2/echo/logs/j"] * 2
