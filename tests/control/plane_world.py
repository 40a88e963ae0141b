"""A plane with its real store, on virtual time: the clock may jump, the store be full; nodes are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any, BinaryIO, TypeVar
from unittest.mock import patch

import pytest

from stoker.control import large_json, store
from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.plane import Plane
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.store import Conn
from stoker.control.store.resources.keys import create_join_token, create_key
from stoker.control.traces.spans import TraceSpan
from stoker.control.traces.traces import Traces
from stoker.outbound.wait_limits import Waiter
from stoker.testing.inline_committer import InlineCommitter
from stoker.testing.memory_artifacts import MemoryArtifacts
from stoker.wire.messages import HeldWorker
from tests.control.scripted_agent import ScriptedAgent
from tests.simulation.memory_store import memory_store
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.virtual_loop import run as run_story

T = TypeVar("T")
NAMESPACE = "the-network-namespace-of-control"


class FullableCommitter(InlineCommitter):
    """`full`: nothing can be stored, as on a full disk; reading goes on. `mistake`: one commit breaks.
    `uncertain`: the commit of this number from now is done, and its answer is lost. `lane`: who has it holds
    back what is to be committed, as one slow COMMIT does; what may be told early is told, and not stored."""

    full = False
    mistake = False
    uncertain = 0

    def __init__(self, opened: store.Store) -> None:
        super().__init__(opened)
        self.lane = asyncio.Lock()

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        if not self.lane.locked():
            return await self._commit(fn, early)
        if early is not None:
            self._conn.begin()
            try:
                value = fn(self._conn)
            finally:
                self._conn.rollback()  # it is run once more, in its turn
            early(value)
        async with self.lane:
            return await self._commit(fn, None)

    async def _commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None) -> T:
        if self.mistake:
            self.mistake = False
            raise RuntimeError("a mistake")
        if self.full:
            await asyncio.sleep(0)
            raise Unavailable("nothing was stored: the disk of the data folder is full; try again later")
        before = self.uncertain
        done = await super().commit(fn, early)
        self.uncertain -= bool(self.uncertain)
        if self.uncertain == 0 and before:
            self.uncertain_commit.set()
            raise UncertainCommit("the database went away in the very moment of storing")
        return done


def endpoint(name: str = "echo", **changes: object) -> Endpoint:
    fields = {"account": "default", "run": EndpointVersion("/h/echo.py:handler"), "workers_max": 1, **changes}
    return Endpoint(id=name, name=name, version=1, **fields)  # type: ignore[arg-type]


def text_of(body: bytes | BinaryIO) -> bytes:
    """The body of a webhook, which is in a file if it is large."""
    return body if isinstance(body, bytes) else body.read()


class World:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.store = memory_store()
        self.commits = FullableCommitter(self.store)
        self.artifacts = MemoryArtifacts()
        self.settings = PlaneSettings(network_namespace=NAMESPACE)
        self.moved = 0.0  # the wall clock, ahead of the loop's
        self.plane: Plane
        self.token = ""
        self.kept: dict[str, str] = {}  # the credential that each node has on its disk
        self.key = ""
        self.posted: list[tuple[float, str, Any, dict[str, str]]] = []
        self.answers: list[int | Exception] = []
        self.traced = False
        self.spans: list[TraceSpan] = []

    async def post(self, url: str, body: bytes | BinaryIO, headers: Mapping[str, str], _whose: Waiter) -> int:
        """A receiver of webhooks: what it got is in `posted`, what it answers comes from `answers`."""
        self.posted.append((self.now(), url, json.loads(text_of(body)), dict(headers)))
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def echo(self) -> Endpoint:
        """The endpoint of this id, as it is now."""
        return self.plane.endpoints.find("default", "echo")

    def now(self) -> float:
        return 1_000_000.0 + self.loop.time() + self.moved

    async def open(self, *endpoints: Endpoint) -> None:
        _, self.token = await self.commits.commit(lambda c: create_join_token(c, name="t", now=0.0))
        _, self.key = await self.commits.commit(lambda c: create_key(c, name="k", now=0.0))
        for account in {one.account for one in endpoints} - {"default"}:
            row = {"id": account, "at": 0.0}
            await self.commits.commit(
                lambda c, row=row: c.run("INSERT INTO accounts (id, created_at) VALUES (:id, :at)", row)
            )
        traces = Traces(self.spans.append, self.now) if self.traced else None
        self.plane = Plane(
            self.settings, self.commits, self.artifacts, self.now, Random(1), self.post, traces
        )
        await self.plane.start(endpoints or (endpoint(),))

    async def gave(self, node: str, *held: HeldWorker, slots: int = 1) -> None:
        """An earlier control told this node to run these."""
        assigned = {
            one.worker: (node, AssignedWorker(one.endpoint, one.version, slots, one.devices)) for one in held
        }
        await self.commits.commit(lambda conn: store.give_workers(conn, assigned))

    def brought_by(self, node: str) -> str:
        return self.kept.get(node, self.token)

    def keep(self, credential: str, node: str = "node-1") -> bool:
        self.kept[node] = credential
        return True

    def agent(self, node: str = "node-1", **kw: str) -> ScriptedAgent:
        return ScriptedAgent(self.plane, self.brought_by(node), node=node, kept=self.kept, **kw)

    async def working_agent(self, tasks: asyncio.TaskGroup) -> ScriptedAgent:
        """A connected one whose worker is ready."""
        agent = self.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        return agent


@asynccontextmanager
async def world(
    *endpoints: Endpoint, settings: PlaneSettings | None = None, traced: bool = False
) -> AsyncIterator[tuple[World, asyncio.TaskGroup]]:
    made = World()
    made.settings, made.traced = settings or made.settings, traced
    await made.open(*endpoints)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = tasks.create_task(made.plane.run())
            yield made, tasks
            background.cancel()
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
    finally:
        made.store.close()


def story(test):  # type: ignore[no-untyped-def]
    """Runs an async test on virtual time, under three orders of events."""

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def wrapped(seed: int) -> None:
        run_story(VirtualLoop(seed), test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@contextmanager
def work_beside_the_loop() -> Iterator[list[str]]:
    """Yields the names of the work on large JSON; each is done at once, as there are no threads here."""
    named: list[str] = []

    async def at_once(name: str, work: Callable[[], T]) -> T:
        named.append(name)
        return work()

    with patch.object(large_json, "run_in_thread", at_once):
        yield named


def one(x: object = 1) -> Submission:
    return Submission(input=f'{{"x":{x}}}'.encode())
