"""A job's lines as they are printed: for readers that come early, late, again, or of whom there is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from stoker.control.jobs import records
from stoker.control.jobs.live_logs import LINGER_S, RING_LINES
from stoker.control.jobs.log_following import LAST_LINES_S
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import LogEvent
from stoker.testing.memory_stream import MemoryStream, memory_logs
from stoker.wire.messages import AttemptKey, LogLines, Outcome, StreamHello
from stoker.wire.streams import StreamEnded
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


class Lines:
    """The agent's stream for logs."""

    def __init__(self, w: World, tasks: asyncio.TaskGroup, agent: ScriptedAgent, session: int) -> None:
        self.hello = StreamHello(agent.node, session)
        self.token = agent.token
        self.stream, theirs = memory_logs()
        self.serving = tasks.create_task(self._serve(w, theirs))

    async def _serve(self, w: World, stream: MemoryStream[Any, Any]) -> None:
        with contextlib.suppress(StreamEnded):
            await w.plane.live_logs.serve(stream, "test", self.token)

    async def begin(self) -> Lines:
        await self.stream.send(LogLines(self.hello))
        return self

    async def wanted(self) -> tuple[AttemptKey, ...]:
        return (await self.stream.receive()).attempts

    async def print(self, key: AttemptKey, first: int, *lines: str, over: bool = False) -> None:
        await self.stream.send(LogLines(None, key.job, key.attempt, first, lines, over))


class Reader:
    def __init__(self, w: World, tasks: asyncio.TaskGroup, job: str, after: tuple[int, int] | None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.moved = asyncio.Event()
        self.task = tasks.create_task(self._read(w, job, after))

    async def _read(self, w: World, job: str, after: tuple[int, int] | None) -> None:
        async for event in w.plane.queries.follow_logs(w.echo, job, after):
            self.seen.append(parts_of(event))
            self.moved.set()

    async def until(self, *last: Any) -> None:
        while not self.seen or self.seen[-1] != last:
            self.moved.clear()
            await self.moved.wait()

    def leave(self) -> None:
        self.task.cancel()


def parts_of(event: LogEvent) -> tuple[Any, ...]:
    match event.kind:
        case "log":
            return event.attempt, event.n, event.line
        case "skipped":
            return ("skipped", event.lines)
        case "reset":
            return ("reset", event.attempt)
    assert event.view is not None
    return ("end", event.view.state.value)


class Scene:
    def __init__(self, w: World, tasks: asyncio.TaskGroup) -> None:
        self.w, self.tasks = w, tasks
        self.agent = w.agent()

    async def open(self) -> Scene:
        welcome = (await self.agent.connect(self.tasks)).welcome
        assert welcome is not None
        self.session = welcome.session
        await self.agent.ready_workers()
        self.lines = await Lines(self.w, self.tasks, self.agent, self.session).begin()
        return self

    async def job(self) -> AttemptKey:
        submitted = await self.w.plane.commands.submit(self.w.echo, one(), sync=False)
        assign = await self.agent.assigned()
        assert assign.job == submitted.id
        self.worker = assign.worker
        return AttemptKey(assign.job, assign.attempt)

    def reader(self, key: AttemptKey, after: tuple[int, int] | None = None) -> Reader:
        return Reader(self.w, self.tasks, key.job, after)

    async def ends(self, key: AttemptKey, *log: str, first: int = 0, end: str = "completed") -> None:
        error = None if end == "completed" else "it broke"
        await self.agent.report(
            Outcome(key.job, key.attempt, self.worker, end, error=error, log=log, log_first=first)
        )


def live(test):  # type: ignore[no-untyped-def]
    async def whole() -> None:
        async with world(endpoint(workers_min=1)) as (w, tasks):
            async with asyncio.timeout(300):
                await test(await Scene(w, tasks).open())

    whole.__name__, whole.__doc__ = test.__name__, test.__doc__
    return story(whole)


@live
async def test_lines_come_as_they_are_printed_and_the_end_after_the_last(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    assert await s.lines.wanted() == (key,)
    await s.lines.print(key, 0, "one", "two")
    await reader.until(1, 1, "two")
    await s.ends(key, "one", "two", "three")
    await s.lines.print(key, 2, "three", over=True)
    await reader.until("end", "COMPLETED")
    assert reader.seen == [(1, 0, "one"), (1, 1, "two"), (1, 2, "three"), ("end", "COMPLETED")]


@live
async def test_nothing_is_requested_of_a_node_until_somebody_reads_and_no_more_when_the_last_has_gone(
    s: Scene,
) -> None:
    key = await s.job()
    await asyncio.sleep(5)
    assert s.lines.stream._inbox.empty()
    first, second = s.reader(key), s.reader(key)
    assert await s.lines.wanted() == (key,)
    first.leave()
    await asyncio.sleep(2 * LINGER_S)
    assert s.lines.stream._inbox.empty()
    second.leave()
    assert await s.lines.wanted() == ()


@live
async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    await s.lines.print(key, 0, "one", "two")
    await reader.until(1, 1, "two")
    reader.leave()
    await s.lines.print(key, 2, "three")
    await asyncio.sleep(1)
    again = s.reader(key, (1, 1))
    await again.until(1, 2, "three")
    assert again.seen == [(1, 2, "three")]


@live
async def test_what_is_gone_is_counted(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    await s.lines.print(key, 40, "late")
    await s.lines.print(key, 1245, "after a flood")
    await reader.until(1, 1245, "after a flood")
    assert reader.seen[0] == ("skipped", 40)
    assert reader.seen[2] == ("skipped", 1204)


@live
async def test_a_slow_reader_costs_no_more_than_the_ring(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    reader.leave()
    for first in range(0, 3 * RING_LINES, 100):
        await s.lines.print(key, first, *map(str, range(first, first + 100)))
    await asyncio.sleep(1)
    again = s.reader(key)
    await again.until(1, 3 * RING_LINES - 1, str(3 * RING_LINES - 1))
    assert again.seen[0] == ("skipped", 2 * RING_LINES)
    assert len(again.seen) == RING_LINES + 1


@live
async def test_of_a_job_that_has_ended_there_is_its_tail(s: Scene) -> None:
    key = await s.job()
    await s.ends(key, "four", "five", first=3)
    await s.w.plane.queries.wait(s.w.echo, key.job, 10)
    reader, again = s.reader(key), s.reader(key, (1, 3))
    await reader.until("end", "COMPLETED")
    await again.until("end", "COMPLETED")
    assert reader.seen == [("skipped", 3), (1, 3, "four"), (1, 4, "five"), ("end", "COMPLETED")]
    assert again.seen == [(1, 4, "five"), ("end", "COMPLETED")]


@live
async def test_lines_have_the_times_at_which_they_were_printed_if_their_node_says_them(s: Scene) -> None:
    key = await s.job()
    events: list[LogEvent] = []
    lines = s.w.plane.queries.follow_logs(s.w.echo, key.job, None)
    reading = s.tasks.create_task(_collected(lines, events))
    await s.lines.wanted()
    await s.lines.stream.send(LogLines(None, key.job, key.attempt, 0, ("one", "two"), at_ms=(10, 20)))
    await s.lines.print(key, 2, "untold")
    await s.agent.report(
        Outcome(
            key.job, key.attempt, s.worker, "completed", log=("two", "last"), log_first=3, log_at_ms=(20, 30)
        )
    )
    await reading
    assert [(e.n, e.at_ms) for e in events if e.kind == "log"] == [
        (0, 10),
        (1, 20),
        (2, None),
        (3, 20),
        (4, 30),
    ]
    (kept,) = await s.w.plane.queries.logs(s.w.echo, key.job)
    assert (kept.lines, kept.times) == (("two", "last"), (20, 30))


async def _collected(lines: AsyncGenerator[LogEvent, None], events: list[LogEvent]) -> None:
    events.extend([event async for event in lines])


@live
async def test_a_new_attempt_begins_with_a_reset(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    await s.lines.print(key, 0, "one", over=True)
    await s.ends(key, "one", end="lost")
    assign = await s.agent.assigned()
    second = AttemptKey(assign.job, assign.attempt)
    while (wanted := await s.lines.wanted()) != (second,):
        assert second not in wanted
    await s.lines.print(second, 0, "anew", over=True)
    await s.ends(second, "anew")
    await reader.until("end", "COMPLETED")
    assert reader.seen == [(1, 0, "one"), ("reset", 2), (2, 0, "anew"), ("end", "COMPLETED")]


@live
async def test_a_job_that_waits_is_followed_once_it_runs(s: Scene) -> None:
    first = await s.job()
    waiting = await s.w.plane.commands.submit(s.w.echo, one(2), sync=False)
    reader = s.reader(AttemptKey(waiting.id, 1))
    await asyncio.sleep(3)
    await s.ends(first)
    assign = await s.agent.assigned()
    key = AttemptKey(assign.job, assign.attempt)
    assert await s.lines.wanted() == (key,)
    await s.lines.print(key, 0, "begun")
    await reader.until(1, 0, "begun")


@live
async def test_a_stream_of_logs_that_breaks_costs_the_reader_nothing_that_is_kept(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    await s.lines.print(key, 0, "one")
    await reader.until(1, 0, "one")
    s.lines.stream.end("cut")
    await s.lines.serving
    await s.ends(key, "one", "two")
    began = s.w.loop.time()
    await reader.until("end", "COMPLETED")
    assert reader.seen == [(1, 0, "one"), (1, 1, "two"), ("end", "COMPLETED")]
    assert s.w.loop.time() - began <= LAST_LINES_S + 0.1


@live
async def test_an_agent_without_a_stream_of_logs_has_its_tail_reported_at_the_end(s: Scene) -> None:
    s.lines.stream.end("an older agent has none")
    await s.lines.serving
    key = await s.job()
    reader = s.reader(key)
    await asyncio.sleep(1)
    await s.ends(key, "all", "of it", end="failed")
    await reader.until("end", "FAILED")
    assert reader.seen == [(1, 0, "all"), (1, 1, "of it"), ("end", "FAILED")]


@live
async def test_lines_of_an_unauthenticated_caller_are_refused(s: Scene) -> None:
    s.lines.stream.end("another one comes")
    await s.lines.serving
    for token, hello in (
        (s.w.token, StreamHello(s.agent.node, s.session)),
        (s.agent.token, StreamHello(s.agent.node, s.session + 1)),
        (s.agent.token, StreamHello("node-2", s.session)),
        (s.agent.token, None),
    ):
        unauthenticated = Lines(s.w, s.tasks, s.agent, s.session)
        unauthenticated.token = token
        await unauthenticated.stream.send(LogLines(hello, "j", 1, 0, ("a line",)))
        with pytest.raises(StreamEnded):
            await unauthenticated.wanted()
        await unauthenticated.serving
    assert not s.w.plane.live_logs.has_stream(s.agent.node)


@live
async def test_a_node_cannot_speak_for_an_attempt_of_another(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    other = s.w.agent(node="node-2")
    welcome = (await other.connect(s.tasks)).welcome
    assert welcome is not None
    theirs = await Lines(s.w, s.tasks, other, welcome.session).begin()
    await theirs.print(key, 0, "forged")
    await asyncio.sleep(1)
    await s.lines.print(key, 0, "true")
    await reader.until(1, 0, "true")


@live
async def test_control_that_stops_lets_its_readers_go_without_an_end(s: Scene) -> None:
    key = await s.job()
    reader = s.reader(key)
    await s.lines.wanted()
    await s.w.plane.stop()
    await reader.task
    assert reader.seen == []
    assert (await s.w.plane.queries.view(s.w.echo, key.job)).state is JobState.IN_PROGRESS


@story
async def test_the_record_of_a_failure_shows_its_last_lines_and_that_of_a_success_none() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        s = await Scene(w, tasks).open()
        printed = [f"line {n}" for n in range(30)]
        for end, state in (("failed", JobState.FAILED), ("completed", JobState.COMPLETED)):
            key = await s.job()
            await s.ends(key, *printed, end=end)
            view = await w.plane.queries.wait(w.echo, key.job, 10)
            assert view.state is state
            shown = tuple(printed[-20:]) if end == "failed" else ()
            assert view.logs == (await w.plane.queries.status(w.echo, key.job)).logs == shown
            assert records.record(view).get("logs", []) == list(shown)
