"""The logs of workers over HTTP: of whose endpoint they are, who may read them, how they are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from stoker.wire.messages import AttemptKey, LogLines, log_of_worker
from tests.control.http.management.managed import Managed, managed
from tests.control.http.management.pods.pod_world import FACTS, GPUS, once
from tests.control.jobs.test_live_logs import Lines
from tests.control.plane_world import endpoint

EVENTS = {"Accept": "text/event-stream"}


@dataclass
class Scene:
    """A load-balancing endpoint with one worker, and its node's stream of logs. `path` is that of its log."""

    api: Managed
    tasks: asyncio.TaskGroup
    lines: Lines
    endpoint: str
    worker: str

    @property
    def key(self) -> AttemptKey:
        return log_of_worker(self.worker)

    @property
    def path(self) -> str:
        return f"/endpoints/{self.endpoint}/workers/{self.worker}/logs"

    def get(self, path: str = "", **options: Any) -> asyncio.Task[httpx2.Response]:
        return self.tasks.create_task(self.api.http.get(path or self.path, **options))

    async def print(self, first: int, *lines: str, over: bool = False) -> None:
        times = tuple(range(1000 + first, 1000 + first + len(lines)))
        await self.lines.stream.send(LogLines(None, self.worker, 0, first, lines, over, times))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with managed(endpoint(workers_max=0)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent()
        agent.peer, agent.tunnels = "ipv4:10.0.0.7:4711", True
        await agent.connect(tasks, devices=GPUS, facts=FACTS)
        session = api.plane.sessions.by_node["node-1"].session
        lines = await Lines(api.world, tasks, agent, session).begin()
        template = await api.made("/templates", name="t", imageName="server:1")
        fields = {"type": "LOAD_BALANCER", "workersMin": 1, "workersMax": 1}
        made = await api.made("/endpoints", name="web", templateId=template["id"], **fields)
        (worker,) = await agent.ready_workers()
        yield Scene(api, tasks, lines, made["id"], worker)
        for stream in (lines.stream, agent.stream):
            stream.end("the test is over")


def by(key: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {key['key']}"}


@once
async def test_a_load_balancing_workers_last_lines_and_their_times() -> None:
    async with scene() as s:
        asked = s.get()
        assert await s.lines.wanted() == (s.key,)
        await s.print(3, "loading", "listening")
        answer = await asked
        assert (answer.status_code, answer.json()) == (
            200,
            {"id": s.worker, "lines": ["loading", "listening"], "printedAt": [1003, 1004]},
        )


@once
async def test_whoever_follows_gets_events_until_the_worker_is_gone() -> None:
    async with scene() as s:
        asked = [
            s.get(params={"follow": "true"}),
            s.get(headers=EVENTS | {"Last-Event-ID": "0-3"}),
        ]
        await s.lines.wanted()
        await s.print(3, "loading", "listening")
        await asyncio.sleep(20)
        await s.print(6, "bye", over=True)
        whole, later = [await one for one in asked]
        assert whole.headers["content-type"] == "text/event-stream"
        assert whole.text == (
            'event: skipped\nid: 0-2\ndata: {"lines":3}\n\n'
            'event: log\nid: 0-3\ndata: {"line":"loading","printedAt":1003}\n\n'
            'event: log\nid: 0-4\ndata: {"line":"listening","printedAt":1004}\n\n'
            ": still here\n\n"
            'event: skipped\nid: 0-5\ndata: {"lines":1}\n\n'
            'event: log\nid: 0-6\ndata: {"line":"bye","printedAt":1006}\n\n'
            f'event: end\ndata: {{"id":"{s.worker}"}}\n\n'
        )
        assert later.text == whole.text.partition("1003}\n\n")[2]


@once
async def test_a_worker_that_is_unknown_or_of_another_endpoint_is_a_404_with_a_sentence() -> None:
    async with scene() as s:
        for path, sentence in (
            (f"/endpoints/{s.endpoint}/workers/gone/logs", f"has no worker 'gone': it has {s.worker}"),
            (f"/endpoints/echo/workers/{s.worker}/logs", f"has no worker '{s.worker}': it has none now"),
            ("/endpoints/nothing/workers/w/logs", "nothing"),
        ):
            for query in ({}, {"follow": "true"}):
                answer = await s.get(path, params=query)
                assert answer.status_code == 404, path
                assert sentence in answer.json()["error"]


@once
async def test_a_wrong_wish_is_refused_and_an_agent_that_does_not_answer_is_a_503() -> None:
    async with scene() as s:
        answer = await s.get(params={"follow": "whatever"})
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("follow: ")
        answer = await s.get(headers={"Last-Event-ID": "seven"})
        assert answer.status_code == 400
        assert "Last-Event-ID must be" in answer.json()["error"]
        answer = await s.get()
        assert answer.status_code == 503
        assert "node node-1 did not send the log of worker" in answer.json()["error"]
        assert answer.headers["retry-after"] == "2"


@once
async def test_the_right_is_that_of_reading_a_jobs_log() -> None:
    async with scene() as s:
        mine = {s.endpoint: "read"}
        for access, status in (
            ({"scope": "read"}, 200),
            ({"scope": "restricted", "management": "none", "endpoints": mine}, 200),
            ({"scope": "restricted", "management": "write", "endpoints": {"*": "none"}}, 401),
            ({"scope": "restricted", "management": "none", "endpoints": {"echo": "read"}}, 401),
        ):
            key = await s.api.made("/keys", access=access)
            asked = s.get(headers=by(key))
            if status == 200:
                await s.lines.wanted()
                await s.print(0, "a line")
            assert (await asked).status_code == status, access
            await asyncio.sleep(20)  # until it is followed no more
            if status == 200:
                assert await s.lines.wanted() == ()


@once
async def test_a_key_that_ends_ends_its_stream() -> None:
    async with scene() as s:
        key = await s.api.made("/keys")
        asked = s.get(headers=by(key) | EVENTS)
        await s.lines.wanted()
        await s.print(0, "a line")
        await asyncio.sleep(1)
        await s.api.http.delete(f"/keys/{key['id']}")
        answer = await asked
        assert answer.status_code == 200
        assert answer.text == 'event: log\nid: 0-0\ndata: {"line":"a line","printedAt":1000}\n\n'
