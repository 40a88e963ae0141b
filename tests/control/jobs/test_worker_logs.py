"""A worker's lines for its readers: the last ones, those that come, and the end of a worker that is gone."""

from __future__ import annotations

import asyncio

import pytest

from stoker.control.errors import NotFound, Unavailable
from stoker.control.jobs.worker_logs import ABSENT_S, ANSWER_S, LINES_MOST
from stoker.control.rules.streams import LogEvent, LogLine
from stoker.wire.messages import AttemptKey, LogLines, WorkerState, log_of_worker
from tests.control.jobs.test_live_logs import Scene, live


async def worker_of(s: Scene) -> AttemptKey:
    (placed,) = s.w.plane.cluster.of_endpoint("echo")
    return log_of_worker(placed.worker)


class Reader:
    def __init__(self, s: Scene, key: AttemptKey, after: tuple[int, int] | None = None) -> None:
        self.events: list[LogEvent] = []
        self._came = asyncio.Event()
        lines = s.w.plane.worker_logs.follow(s.w.echo, key.job, after)
        self.task = s.tasks.create_task(self._read(lines))

    async def _read(self, lines) -> None:  # type: ignore[no-untyped-def]
        async for event in lines:
            self.events.append(event)
            self._came.set()

    async def until(self, kind: str, line: str = "") -> None:
        while not self.events or (self.events[-1].kind, self.events[-1].line) != (kind, line):
            self._came.clear()
            await self._came.wait()


@live
async def test_the_last_lines_are_asked_of_the_node_and_come_in_any_number_of_messages(s: Scene) -> None:
    key = await worker_of(s)
    asking = s.tasks.create_task(s.w.plane.worker_logs.last(s.w.echo, key.job))
    assert await s.lines.wanted() == (key,)
    await s.lines.stream.send(LogLines(None, *parts(key), 40, ("a", "b"), at_ms=(1, 2), more=True))
    await asyncio.sleep(1)
    assert not asking.done()
    await s.lines.stream.send(LogLines(None, *parts(key), 42, ("c",), at_ms=(3,)))
    assert await asking == [LogLine(40, "a", 1), LogLine(41, "b", 2), LogLine(42, "c", 3)]
    again = await s.w.plane.worker_logs.last(s.w.echo, key.job)
    assert [line.text for line in again] == ["a", "b", "c"]


@live
async def test_a_worker_that_has_printed_nothing_has_no_lines_and_one_that_prints_much_the_last(
    s: Scene,
) -> None:
    key = await worker_of(s)
    asking = s.tasks.create_task(s.w.plane.worker_logs.last(s.w.echo, key.job))
    await s.lines.wanted()
    await s.lines.print(key, 0)
    assert await asking == []
    await s.lines.print(key, 0, *map(str, range(LINES_MOST + 1)))
    await asyncio.sleep(1)
    lines = await s.w.plane.worker_logs.last(s.w.echo, key.job)
    assert [line.n for line in lines] == [*range(LINES_MOST + 1)]


@live
async def test_a_reader_follows_until_the_worker_is_gone_and_may_come_back(s: Scene) -> None:
    key = await worker_of(s)
    reader = Reader(s, key)
    await s.lines.wanted()
    await s.lines.print(key, 0, "one", "two")
    await reader.until("log", "two")
    again = Reader(s, key, (0, 0))
    await again.until("log", "two")
    await s.lines.print(key, 5, "last", over=True)
    for one in (reader, again):
        await one.until("end")
        await one.task
    assert [(event.kind, event.n, event.line) for event in again.events] == [
        ("log", 1, "two"),
        ("skipped", 4, ""),
        ("log", 5, "last"),
        ("end", 5, ""),
    ]
    assert {event.attempt for event in reader.events} == {0}
    assert reader.events[-1].worker == key.job


@live
async def test_an_agent_that_does_not_answer_is_named(s: Scene) -> None:
    key, began = await worker_of(s), s.w.loop.time()
    with pytest.raises(Unavailable, match=f"node {s.agent.node} did not send the log of worker {key.job}"):
        await s.w.plane.worker_logs.last(s.w.echo, key.job)
    assert s.w.loop.time() - began == ANSWER_S


@live
async def test_what_is_no_worker_of_the_endpoint_is_not_found(s: Scene) -> None:
    key = await worker_of(s)
    with pytest.raises(NotFound, match=f"endpoint echo has no worker 'w-other': it has {key.job}"):
        await s.w.plane.worker_logs.last(s.w.echo, "w-other")
    with pytest.raises(NotFound, match="it has"):
        s.w.plane.worker_logs.follow(s.w.echo, "w-other", None)
    s.w.plane.cluster.remove_worker(key.job)
    with pytest.raises(NotFound, match=f"no worker '{key.job}': it has none now"):
        await s.w.plane.worker_logs.last(s.w.echo, key.job)


@live
async def test_a_node_that_comes_back_with_the_worker_is_waited_for_and_one_that_stays_away_is_not(
    s: Scene,
) -> None:
    key = await worker_of(s)
    reader = Reader(s, key)
    await s.lines.wanted()
    await s.lines.print(key, 0, "one")
    await reader.until("log", "one")
    placed = s.w.plane.cluster.workers[key.job]
    s.w.plane.cluster.remove_worker(key.job)
    await asyncio.sleep(ABSENT_S / 2)
    s.w.plane.cluster.add_worker(placed)
    await asyncio.sleep(2 * ABSENT_S)
    assert not reader.task.done()
    s.w.plane.cluster.remove_worker(key.job)
    await reader.until("end")


@live
async def test_a_worker_that_its_node_reports_gone_ends_its_log_though_the_last_lines_are_lost(
    s: Scene,
) -> None:
    key = await worker_of(s)
    reader = Reader(s, key)
    await s.lines.wanted()
    await s.agent.report(WorkerState(key.job, "echo", s.w.echo.version, "gone"))
    await reader.until("end")
    assert [event.kind for event in reader.events] == ["end"]


@live
async def test_control_that_stops_lets_the_readers_of_workers_go_without_an_end(s: Scene) -> None:
    reader = Reader(s, await worker_of(s))
    await s.lines.wanted()
    await s.w.plane.stop()
    await reader.task
    assert reader.events == []


def parts(key: AttemptKey) -> tuple[str, int]:
    return key.job, key.attempt
