"""What must hold of usage. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

HOUR = 3_600_000
WALL = 500_000 * HOUR + 10 * 60_000  # ten past


def meter(m: Any, **more: Any) -> Any:
    values = {"owner": "w1", "boot": "b1", "kind": "worker", "endpoint": "echo", "version": 3} | more
    return m.Meter(**values, devices=("gpu-0",))


def spans_of(m: Any, state: Any, *events: Any) -> tuple[Any, list[Any]]:
    spans: list[Any] = []
    for event in events:
        state, more = m.step(state, event)
        spans += more
    return state, spans


def brief(spans: list[Any]) -> list[tuple[str, int, int]]:
    return [(span.state, span.began_ms - WALL, span.ended_ms - WALL) for span in spans]


def long_states_are_reported_one_by_one(m: Any) -> None:
    events = [m.Began(7.0, WALL), m.Ready(17.25), m.Jobs(23.0, 1), m.Jobs(30.0, 2), m.Jobs(40.0, 0)]
    _, spans = spans_of(m, meter(m), *events, m.Ended(42.5))
    assert brief(spans) == [
        ("starting", 0, 10_250),
        ("idle", 10_250, 16_000),
        ("running", 16_000, 33_000),
        ("idle", 33_000, 35_500),
    ]
    assert [span.n for span in spans] == [1, 2, 3, 4]
    first = spans[0]
    assert (first.owner, first.boot, first.kind, first.endpoint, first.version, first.devices) == (
        "w1",
        "b1",
        "worker",
        "echo",
        3,
        ("gpu-0",),
    )


def short_jobs_are_reported_together(m: Any) -> None:
    state, _ = spans_of(m, meter(m), m.Began(0.0, WALL), m.Ready(0.5))
    events = [m.Jobs(1 + n / 2, n % 2) for n in range(1, 10)]  # from 1.5 s on, half a second each
    _, spans = spans_of(m, state, *events)
    assert brief(spans) == [("starting", 0, 500), ("running", 500, 2_500), ("idle", 2_500, 5_000)]


def a_window_is_a_minute_at_most(m: Any) -> None:
    state, _ = spans_of(m, meter(m), m.Began(0.0, WALL), m.Ready(6.0))
    assert state.wake_at == 66.0
    assert m.step(state, m.Tick(65.9)) == (state, ())
    state, spans = m.step(state, m.Tick(66.0))
    assert brief(spans) == [("idle", 6_000, 66_000)]
    assert state.wake_at == 126.0


def it_is_cut_at_the_full_hour(m: Any) -> None:
    state, _ = spans_of(m, meter(m), m.Began(0.0, WALL + 50 * 60_000 - 20_000))
    assert state.wake_at == 20.0
    _, spans = m.step(state, m.Tick(20.0))
    assert [span.ended_ms % HOUR for span in spans] == [0]
    # late, as after a stopped process: the span is cut all the same
    _, late = m.step(state, m.Ended(30.0))
    assert [(span.began_ms % HOUR, span.ended_ms % HOUR) for span in late] == [
        (HOUR - 20_000, 0),
        (0, 10_000),
    ]
    assert [span.n for span in late] == [1, 2]


def nothing_is_measured_between_two_processes(m: Any) -> None:
    state, first = spans_of(m, meter(m), m.Began(0.0, WALL), m.Ended(6.0))
    assert state.wake_at is None
    assert m.step(state, m.Ready(7.0)) == (state, ())
    assert m.step(state, m.Tick(700.0)) == (state, ())
    _, second = spans_of(m, state, m.Began(700.0, WALL + 700_000), m.Ended(701.0))
    assert brief([*first, *second]) == [("starting", 0, 6_000), ("starting", 700_000, 701_000)]
    assert [span.n for span in (*first, *second)] == [1, 2]


def a_wall_clock_that_goes_back_makes_no_overlap(m: Any) -> None:
    state, first = spans_of(m, meter(m), m.Began(0.0, WALL), m.Ended(6.0))
    _, second = spans_of(m, state, m.Began(6.0, WALL - 3_000), m.Ended(8.0))
    assert brief([*first, *second]) == [("starting", 0, 6_000), ("starting", 6_000, 8_000)]


def a_pod_runs_from_its_begin(m: Any) -> None:
    state, spans = spans_of(m, meter(m, kind="pod", endpoint=""), m.Began(0.0, WALL), m.Ended(3.0))
    assert brief(spans) == [("running", 0, 3_000)]
    assert spans[0].kind == "pod"
    assert state.n == 2


def jobs_before_it_is_ready_are_none(m: Any) -> None:
    _, spans = spans_of(m, meter(m), m.Began(0.0, WALL), m.Jobs(6.0, 0), m.Ended(7.0))
    assert brief(spans) == [("starting", 0, 7_000)]


def an_empty_stretch_is_no_span(m: Any) -> None:
    _, spans = spans_of(m, meter(m), m.Began(0.0, WALL), m.Ready(0.0), m.Ended(1.0))
    assert brief(spans) == [("idle", 0, 1_000)]
    assert spans_of(m, meter(m), m.Began(0.0, WALL), m.Ended(0.0))[1] == []


def lengths_add_up_to_the_millisecond(m: Any) -> None:
    """Ends that fall between milliseconds lose and win nothing in the sum."""
    walk(m, Random(5).choice)


def walk(m: Any, draw: Callable[[Sequence[Any]], Any]) -> None:
    """Any life of a worker, against a meter that remembers every moment."""
    state, spans = meter(m), []
    at, wall, alive = 100.0, WALL, None
    began = [0.0, 0]  # of the present process, by both clocks
    lived = {"starting": 0, "running": 0, "idle": 0}
    since = 0
    for _ in range(60):
        step = draw([0.0001, 0.3333, 1.7, 4.9999, 61.0, 1_900.0])
        due = state.wake_at
        while due is not None and due <= at + step:
            state, more = m.step(state, m.Tick(due))
            spans += more
            assert state.wake_at > due
            due = state.wake_at
        at, wall = at + step, wall + round(step * 1000)
        wall -= draw([0, 0, 0, 5_000])
        kind = draw(["began", "ready", "jobs", "none", "ended"])
        if alive is None and kind == "began":
            place = max(wall, spans[-1].ended_ms if spans else wall)
            event, alive, began, since = m.Began(at, wall), "starting", [at, place], place
        elif alive is not None and kind in {"ready", "jobs", "none", "ended"}:
            now = max(began[1] + round((at - began[0]) * 1000), since)
            lived[alive] += now - since
            since = now
            event = {
                "ready": m.Ready(at),
                "jobs": m.Jobs(at, 2),
                "none": m.Jobs(at, 0),
                "ended": m.Ended(at),
            }[kind]
            if kind == "ended":
                alive = None
            elif kind == "ready":
                alive = "idle"
            elif alive != "starting":
                alive = "running" if kind == "jobs" else "idle"
        else:
            continue
        state, more = m.step(state, event)
        spans += more
    if alive is not None:
        lived[alive] += max(began[1] + round((at - began[0]) * 1000), since) - since
        state, more = m.step(state, m.Ended(at))
        spans += more
    check_spans(spans)
    reported_ms = {kind: sum(s.ended_ms - s.began_ms for s in spans if s.state == kind) for kind in lived}
    assert reported_ms == lived


def what_changes_nothing_need_not_be_reported(m: Any) -> None:
    for seed in range(20):
        same_bills(m, Random(seed).choice)


def same_bills(m: Any, draw: Callable[[Sequence[Any]], Any]) -> None:
    """Any history of processes, and of jobs on those that are ready: the spans are those of a meter that is
    told of every job, and not only of the first to begin and the last to end."""
    eager = lazy = meter(m)
    at, count = 100.0, 0
    for _ in range(60):
        at += draw([0.0, 0.0004, 0.3333, 1.7, 4.9999, 61.0, 1_900.0])
        kind = draw(["began", "ready", "begins", "begins", "ends", "ends", "tick", "ended"])
        before = count
        if kind in {"begins", "ends"}:
            if eager.state not in {"idle", "running"}:
                continue
            count = max(count + (1 if kind == "begins" else -1), 0)
            event = m.Jobs(at, count)
        elif kind == "began":
            event = m.Began(at, WALL + round(at * 1000))
        else:
            event = getattr(m, kind.title())(at)
        if kind in {"began", "ready", "ended"}:
            count = 0
        eager, told_all = m.step(eager, event)
        spans: tuple[Any, ...] = ()
        if kind not in {"begins", "ends"} or not before or not count:
            lazy, spans = m.step(lazy, event)
        assert (lazy, spans) == (eager, told_all)


def check_spans(spans: list[Any]) -> None:
    assert [span.n for span in spans] == list(range(1, len(spans) + 1))
    assert all(one.ended_ms <= other.began_ms for one, other in pairwise(spans))
    for span in spans:
        assert 0 < span.ended_ms - span.began_ms <= 60_000
        assert span.began_ms // HOUR == (span.ended_ms - 1) // HOUR


MUTANTS = [
    ("lengths are cut off", "round((event.at - meter.clock) * 1000)", "int((event.at - meter.clock) * 1000)"),
    ("the window stays open", "now >= _due(meter.window)", "now > _due(meter.window)"),
    ("no hour", "min(window + LONGEST_MS,", "max(window + LONGEST_MS,"),
    ("a late span crosses the hour", "return [*hours, ended] if", "return [ended] if"),
    ("an empty span", "if ended > began else []", "if ended >= began else []"),
    ("numbers begin again", "n=meter.n + len(spans), window", "window"),
    ("every change is told", "now - meter.window >= SHORTEST_MS", "True"),
    ("what was short is forgotten", "spent=tuple(spent), since=now", "since=now"),
    ("a clock that went back", "max(event.wall_ms, meter.window)", "event.wall_ms"),
    ("a pod starts like a worker", '"running" if meter.kind == "pod" else "starting"', '"starting"'),
    ("it is told after its end", "state, cut = None, True", "cut = True"),
    ("ready by a job", 'if state != "starting":', 'if state != "":'),
    ("no job is one", '"running" if count else "idle"', '"running"'),
]
