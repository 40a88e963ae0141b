"""What every PodEngine must do under `agent.pods.pods`: stories that run with the fake engine and real
ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stoker.agent.pods.interfaces import PodEngine
from stoker.agent.pods.pods import MarksInMemory, Pods
from stoker.agent.workers.lifecycle import usage
from stoker.agent.workers.lifecycle.metering import Metering
from stoker.wire.messages import PodPort, PodSpec, PodState, Usage


@dataclass
class Programs:
    """Commands of the tests' image. `runs` ends well by SIGTERM."""

    image: str
    absent: str
    runs: tuple[str, ...]
    stubborn: tuple[str, ...]
    ends: tuple[str, ...]  # with code 7, having printed "no model" and the token of its environment
    needs_memory: tuple[str, ...]
    limits: Any = None  # of the last one


@dataclass
class PodNode:
    """A node with an engine, on which agents run one after the other. `reports` are those of all of them."""

    engine: PodEngine
    programs: Programs
    look_s: float
    volumes: Callable[[], set[str]]
    containers: Callable[[], set[str]]
    is_up: Callable[[PodState], Coroutine[Any, Any, None]]
    """Returns once the program of a pod that was reported as running handles signals."""
    reports: list[PodState] = field(default_factory=list)
    spans: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = MarksInMemory()
        self.moved = asyncio.Event()
        self.specs: dict[str, PodSpec] = {}

    def begin(self) -> None:
        self.pods = Pods(self.engine, self.marks, self._report, self._meter, self.look_s)
        self.running = asyncio.create_task(self.pods.run())

    def _report(self, state: PodState) -> None:
        self.reports.append(state)
        self.moved.set()

    def _meter(self, spec: PodSpec) -> Metering:
        return Metering(usage.Meter(spec.pod, "b", "pod"), self.spans.append, lambda: 1000.0)

    async def end(self) -> None:
        self.pods.discard()
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running

    async def next_agent(self) -> None:
        """Starts an agent after the one before has died: all that it knew is lost but the marks."""
        await self.end()
        self.begin()
        await self.pods.looked.wait()

    def wish(self, pod: str = "p1", **fields: Any) -> None:
        before = self.specs.get(pod)
        defaults = {
            "version": 1,
            "wish": "RUNNING",
            "image": self.programs.image,
            "command": self.programs.runs,
        }
        kept = {} if before is None else {name: getattr(before, name) for name in PodSpec.__slots__}
        self.specs[pod] = PodSpec(**{"pod": pod, **defaults, **kept, **fields})
        self.send()

    def send(self) -> None:
        self.pods.desire(tuple(self.specs.values()))

    async def reported(self, state: str, pod: str = "p1", since: int = 0, **fields: Any) -> PodState:
        """Returns the first report, from the `since`th on, of this pod with this state and these fields."""

        def found() -> PodState | None:
            for one in self.reports[since:]:
                same = all(getattr(one, name) == value for name, value in fields.items())
                if (one.pod, one.state) == (pod, state) and same:
                    return one
            return None

        async with asyncio.timeout(90):
            while (one := found()) is None:
                self.moved.clear()
                await self.moved.wait()
        return one

    async def up(self, **fields: Any) -> PodState:
        one = await self.reported("running", **fields)
        await self.is_up(one)
        return one

    async def leave_nothing(self) -> None:
        for pod in list(self.specs):
            if [one.state for one in self.reports if one.pod == pod][-1:] != ["gone"]:
                since = len(self.reports)
                self.wish(pod, wish="TERMINATED")
                await self.reported("gone", pod, since)
        assert self.containers() == set()
        assert self.volumes() == set()


PORTS = (PodPort(8000, "http"), PodPort(8001, "udp"))


async def it_runs_is_stopped_and_runs_again(node: PodNode) -> None:
    node.wish(ports=PORTS)
    first = await node.up()
    assert [state.state for state in node.reports] == ["creating", "running"]
    assert {(port.private, port.protocol) for port in first.ports} == {(8000, "tcp"), (8001, "udp")}
    assert all(port.public > 0 for port in first.ports)
    assert first.started_ms is not None

    node.wish(wish="EXITED")
    stopped = await node.reported("exited")
    assert (stopped.exit_code, stopped.reason) == (0, "it was stopped, and ended with code 0")
    assert (stopped.ports, node.volumes()) == ((), {"p1"})
    assert node.containers() == {"p1"}

    node.wish(wish="RUNNING", restarts=1)
    await node.up(restarts=1)


async def one_that_ignores_sigterm_is_killed(node: PodNode) -> None:
    node.wish(command=node.programs.stubborn, ports=PORTS)
    await node.up()
    node.wish(wish="EXITED")
    stopped = await node.reported("exited")
    assert (stopped.exit_code, "was killed" in stopped.reason) == (137, True)


async def a_reset_keeps_the_volume(node: PodNode) -> None:
    node.wish(ports=PORTS)
    await node.up()
    node.wish(version=2, env={"A": "b"})
    await node.up(version=2)
    assert node.volumes() == {"p1"}


async def it_ends_by_itself_and_is_left_so(node: PodNode) -> None:
    env = {"TOKEN": "abc-secret", "WORD": "hunter2"}
    node.wish(command=node.programs.ends, env=env, hidden=("hunter2",))
    ended = await node.reported("exited")
    assert (ended.exit_code, ended.reason) == (7, "exited with code 7")
    assert ended.log_tail == ("no model", "*** ***")
    await node.next_agent()
    node.send()
    await node.reported("exited", since=len(node.reports))
    assert [state.state for state in node.reports].count("creating") == 1
    node.wish(restarts=1)
    await node.reported("exited", restarts=1)


async def a_lack_of_memory_is_named(node: PodNode) -> None:
    node.wish(command=node.programs.needs_memory, limits=node.programs.limits)
    ended = await node.reported("exited")
    assert ended.exit_code == 137
    assert "out of memory" in ended.reason


async def an_image_that_there_is_not(node: PodNode) -> None:
    node.wish(image=node.programs.absent)
    failed = await node.reported("failed")
    assert f"image {node.programs.absent} cannot be pulled" in failed.reason
    assert node.containers() == set()


async def the_next_agent_finds_it(node: PodNode) -> None:
    node.wish(ports=PORTS)
    first = await node.up()
    await node.next_agent()
    (held,) = node.pods.held()
    assert (held.pod, held.version, held.restarts, held.state) == ("p1", 1, 0, "running")
    since = len(node.reports)
    node.send()
    again = await node.reported("running", since=since)
    assert (again.started_ms, again.ports) == (first.started_ms, first.ports), "it never stopped"

    node.marks.kept = {}  # and the file has gone, too
    await node.next_agent()
    assert [held.pod for held in node.pods.held()] == ["p1"]


async def nobody_names_it(node: PodNode) -> None:
    node.wish(ports=PORTS)
    await node.up()
    node.pods.desire(())
    await node.next_agent()
    node.pods.desire(())
    assert node.containers() == {"p1"}
    assert node.pods.held()[0].state == "running"


async def one_that_is_made_stopped(node: PodNode) -> None:
    node.wish(wish="EXITED")
    stopped = await node.reported("exited")
    assert (stopped.exit_code, node.containers()) == (None, set())


STORIES = [
    it_runs_is_stopped_and_runs_again,
    one_that_ignores_sigterm_is_killed,
    a_reset_keeps_the_volume,
    it_ends_by_itself_and_is_left_so,
    a_lack_of_memory_is_named,
    an_image_that_there_is_not,
    the_next_agent_finds_it,
    nobody_names_it,
    one_that_is_made_stopped,
]


async def run_story(story: Callable[[PodNode], Coroutine[Any, Any, None]], node: PodNode) -> None:
    """Runs a story, and checks that it leaves nothing behind."""
    node.begin()
    await node.pods.looked.wait()
    try:
        await story(node)
        await node.leave_nothing()
    finally:
        await node.end()
