"""What every PodEngine must do under the pods' shell: stories told of the fake one and of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stoker.agent import usage
from stoker.agent.metering import Metering
from stoker.agent.pod_seam import PodEngine
from stoker.agent.pods import MarksInMemory, Pods
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
class Place:
    """A node with an engine, and one agent's life after another."""

    engine: PodEngine
    programs: Programs
    look_s: float
    volumes: Callable[[], set[str]]
    containers: Callable[[], set[str]]
    is_up: Callable[[PodState], Coroutine[Any, Any, None]]
    """Returns once the program of the pod that is said to run hears signals."""
    said: list[PodState] = field(default_factory=list)
    spans: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = MarksInMemory()
        self.moved = asyncio.Event()
        self.specs: dict[str, PodSpec] = {}

    def begin(self) -> None:
        self.pods = Pods(self.engine, self.marks, self._report, self._meter, self.look_s)
        self.running = asyncio.create_task(self.pods.run())

    def _report(self, state: PodState) -> None:
        self.said.append(state)
        self.moved.set()

    def _meter(self, spec: PodSpec) -> Metering:
        return Metering(usage.Meter(spec.pod, "b", "pod"), self.spans.append, lambda: 1000.0)

    async def end(self) -> None:
        self.pods.discard()
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running

    async def next_agent(self) -> None:
        """The one before has died: what it knew is lost, but for the marks."""
        await self.end()
        self.begin()
        await self.pods.looked.wait()

    def wish(self, pod: str = "p1", **fields: Any) -> None:
        before = self.specs.get(pod)
        given = {"version": 1, "wish": "RUNNING", "image": self.programs.image, "command": self.programs.runs}
        kept = {} if before is None else {name: getattr(before, name) for name in PodSpec.__slots__}
        self.specs[pod] = PodSpec(**{"pod": pod, **given, **kept, **fields})
        self.say()

    def say(self) -> None:
        self.pods.desire(tuple(self.specs.values()))

    async def told(self, state: str, pod: str = "p1", since: int = 0, **fields: Any) -> PodState:
        """The first report from the `since`th on that says that of it."""

        def found() -> PodState | None:
            for one in self.said[since:]:
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
        one = await self.told("running", **fields)
        await self.is_up(one)
        return one

    async def leave_nothing(self) -> None:
        for pod in list(self.specs):
            if [one.state for one in self.said if one.pod == pod][-1:] != ["gone"]:
                since = len(self.said)
                self.wish(pod, wish="TERMINATED")
                await self.told("gone", pod, since)
        assert self.containers() == set()
        assert self.volumes() == set()


PORTS = (PodPort(8000, "http"), PodPort(8001, "udp"))


async def it_runs_is_stopped_and_runs_again(place: Place) -> None:
    place.wish(ports=PORTS)
    first = await place.up()
    assert [state.state for state in place.said] == ["creating", "running"]
    assert {(port.private, port.protocol) for port in first.ports} == {(8000, "tcp"), (8001, "udp")}
    assert all(port.public > 0 for port in first.ports)
    assert first.started_ms is not None

    place.wish(wish="EXITED")
    stopped = await place.told("exited")
    assert (stopped.exit_code, stopped.reason) == (0, "it was stopped, and ended with code 0")
    assert (stopped.ports, place.volumes()) == ((), {"p1"})
    assert place.containers() == {"p1"}

    place.wish(wish="RUNNING", restarts=1)
    await place.up(restarts=1)


async def one_that_hears_nothing_is_killed(place: Place) -> None:
    place.wish(command=place.programs.stubborn, ports=PORTS)
    await place.up()
    place.wish(wish="EXITED")
    stopped = await place.told("exited")
    assert (stopped.exit_code, "was killed" in stopped.reason) == (137, True)


async def a_reset_keeps_the_volume(place: Place) -> None:
    place.wish(ports=PORTS)
    await place.up()
    place.wish(version=2, env={"A": "b"})
    await place.up(version=2)
    assert place.volumes() == {"p1"}


async def it_ends_by_itself_and_is_left_so(place: Place) -> None:
    env = {"TOKEN": "abc-secret", "WORD": "hunter2"}
    place.wish(command=place.programs.ends, env=env, hidden=("hunter2",))
    ended = await place.told("exited")
    assert (ended.exit_code, ended.reason) == (7, "exited with code 7")
    assert ended.log_tail == ("no model", "*** ***")
    await place.next_agent()
    place.say()
    await place.told("exited", since=len(place.said))
    assert [state.state for state in place.said].count("creating") == 1
    place.wish(restarts=1)
    await place.told("exited", restarts=1)


async def a_lack_of_memory_is_named(place: Place) -> None:
    place.wish(command=place.programs.needs_memory, limits=place.programs.limits)
    ended = await place.told("exited")
    assert ended.exit_code == 137
    assert "out of memory" in ended.reason


async def an_image_that_there_is_not(place: Place) -> None:
    place.wish(image=place.programs.absent)
    failed = await place.told("failed")
    assert f"image {place.programs.absent} cannot be pulled" in failed.reason
    assert place.containers() == set()


async def the_next_agent_finds_it(place: Place) -> None:
    place.wish(ports=PORTS)
    first = await place.up()
    await place.next_agent()
    (held,) = place.pods.held()
    assert (held.pod, held.version, held.restarts, held.state) == ("p1", 1, 0, "running")
    since = len(place.said)
    place.say()
    again = await place.told("running", since=since)
    assert (again.started_ms, again.ports) == (first.started_ms, first.ports), "it never stopped"

    place.marks.kept = {}  # and the file has gone, too
    await place.next_agent()
    assert [held.pod for held in place.pods.held()] == ["p1"]


async def nobody_names_it(place: Place) -> None:
    place.wish(ports=PORTS)
    await place.up()
    place.pods.desire(())
    await place.next_agent()
    place.pods.desire(())
    assert place.containers() == {"p1"}
    assert place.pods.held()[0].state == "running"


async def one_that_is_made_stopped(place: Place) -> None:
    place.wish(wish="EXITED")
    stopped = await place.told("exited")
    assert (stopped.exit_code, place.containers()) == (None, set())


STORIES = [
    it_runs_is_stopped_and_runs_again,
    one_that_hears_nothing_is_killed,
    a_reset_keeps_the_volume,
    it_ends_by_itself_and_is_left_so,
    a_lack_of_memory_is_named,
    an_image_that_there_is_not,
    the_next_agent_finds_it,
    nobody_names_it,
    one_that_is_made_stopped,
]


async def tell(story: Callable[[Place], Coroutine[Any, Any, None]], place: Place) -> None:
    """And see that nothing of it is left."""
    place.begin()
    await place.pods.looked.wait()
    try:
        await story(place)
        await place.leave_nothing()
    finally:
        await place.end()
