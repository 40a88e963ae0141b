"""The pods of this node: the shell of `agent.pod`, over whatever engine is behind the seam.

    Desired ──> Pods ──one command at a time, for each pod──> PodEngine
       reports <──'  <── looked at every LOOK_S ──────────────────'

- Pods outlive the agent: it stops none of them when it ends. A new one finds them by their label, says them
  in its first Hello, and goes on with what is wanted. Until control has said that, it leaves them alone.
- The marks (`agent.pod`) are kept in one small file, written before the command that they are about.
- A pod holds its devices while its container runs: that is what is metered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from stoker.agent import attempt_log, pod, redaction
from stoker.agent.alarm import Alarm
from stoker.agent.metering import Metering
from stoker.agent.pod_events import (
    Command,
    Container,
    Done,
    Ended,
    Event,
    Failed,
    GiveUp,
    Keep,
    Look,
    Make,
    Mark,
    Pull,
    Remove,
    RemoveVolume,
    Report,
    Runs,
    Saw,
    Signal,
    Start,
    Tick,
    Wished,
)
from stoker.agent.pod_seam import PodEngine, PodFailed
from stoker.agent.restarts import back_off
from stoker.wire.messages import HeldPod, PodSpec, PodState

log = logging.getLogger(__name__)

LOOK_S = 2.0


class Marks(Protocol):
    """One file, replaced as a whole and durable when `save` returns. A torn one loads as none."""

    def load(self) -> dict[str, Mark]: ...

    def save(self, marks: Mapping[str, Mark]) -> None:
        """Raises OSError when the disk is full."""


class MarksInMemory:
    """Of a test, or of an agent that runs no pods. What it holds outlives a Pods."""

    def __init__(self) -> None:
        self.kept: dict[str, Mark] = {}

    def load(self) -> dict[str, Mark]:
        return dict(self.kept)

    def save(self, marks: Mapping[str, Mark]) -> None:
        self.kept = dict(marks)


@dataclass(slots=True, eq=False)
class Seat:
    """One pod with its timer. `work` is the command being performed, `meters` are by version."""

    pod: pod.Pod
    alarm: Alarm
    work: asyncio.Task[None] | None = None
    signals: set[asyncio.Task[None]] = field(default_factory=set)
    heard: bool = False  # the engine has answered for it, or cannot
    unnamed: bool = False  # it was logged that nobody names it
    trouble: str = ""
    meters: dict[int, Metering] = field(default_factory=dict)
    metered: Metering | None = None


class Pods:
    """`looked` is set when the engine has told of every pod that an earlier agent left, or has not answered.
    `meter` makes what measures one version of a pod."""

    def __init__(
        self,
        engine: PodEngine,
        marks: Marks,
        report: Callable[[PodState], object],
        meter: Callable[[PodSpec], Metering],
        look_s: float = LOOK_S,
    ) -> None:
        self._engine, self._marks, self._report, self._meter = engine, marks, report, meter
        self._look_s = look_s
        self._kept: dict[str, Mark] = {}
        self._seats: dict[str, Seat] = {}
        self._tasks: asyncio.TaskGroup
        self._found = False
        self._sat = asyncio.Event()  # there are pods to look at
        self.looked = asyncio.Event()

    async def run(self) -> NoReturn:
        """Until it is cancelled; the containers stay as they are."""
        self._kept = self._marks.load()
        async with asyncio.TaskGroup() as self._tasks:
            for name, mark in self._kept.items():
                self._sit(name, mark)
            self._tasks.create_task(self._find(), name="find pods")
            while True:
                if not self._seats:
                    self._sat.clear()
                    await self._sat.wait()
                await asyncio.sleep(self._look_s)
                for seat in list(self._seats.values()):
                    if pod.watched(seat.pod):
                        self._tell(seat, Tick(_now()))
        raise AssertionError("a group with an endless task does not end")

    def discard(self) -> None:
        """No timer of it rings any more."""
        for seat in self._seats.values():
            seat.alarm.set(None)
            for meter in seat.meters.values():
                meter.discard()

    # -- for the session

    def desire(self, specs: tuple[PodSpec, ...]) -> None:
        """What is wanted of the pods that are named; of others nothing is."""
        named = {spec.pod: spec for spec in specs}
        for name, spec in named.items():
            seat = self._seats.get(name) or self._sit(name, None)
            self._tell(seat, Wished(_now(), spec))
        for name, seat in list(self._seats.items()):
            if name not in named:
                self._leave(seat)

    def held(self) -> tuple[HeldPod, ...]:
        found = (pod.held(seat.pod) for seat in self._seats.values())
        return tuple(one for one in found if one is not None)

    def _leave(self, seat: Seat) -> None:
        if not seat.unnamed and not isinstance(seat.pod.doing, pod.Gone):
            log.warning("pod %s is not among those that control names; it is left as it is", seat.pod.name)
            seat.unnamed = True
        self._tell(seat, Wished(_now(), None))

    # -- its pods

    async def _find(self) -> None:
        failures = 0
        while True:
            try:
                found = await self._engine.found()
                break
            except PodFailed as error:
                log.warning("which pods this node has is not known yet: %s", str(error))
            failures += 1
            self._found = True
            self._see_whether_looked()
            await asyncio.sleep(back_off(failures))
        for name, mark in found.items():
            if name not in self._seats:
                self._sit(name, mark)
        self._found = True
        self._see_whether_looked()

    def _sit(self, name: str, mark: Mark | None) -> Seat:
        first, commands = pod.begin(name, mark)
        alarm = Alarm(lambda at: self._tell(seat, Tick(at)))
        seat = self._seats[name] = Seat(first, alarm)
        self._sat.set()
        for command in commands:
            self._perform(seat, command)
        return seat

    def _see_whether_looked(self) -> None:
        if self._found and all(seat.heard for seat in self._seats.values()):
            self.looked.set()

    def _tell(self, seat: Seat, event: Event) -> None:
        if isinstance(event, Saw | Failed):
            seat.heard = True
        seat.pod, commands = pod.step(seat.pod, event)
        for command in commands:
            self._perform(seat, command)
        seat.alarm.set(pod.wake_at(seat.pod))
        self._measure(seat)
        if isinstance(seat.pod.doing, pod.Gone) and seat.pod.spec is None:
            self._seats.pop(seat.pod.name, None)
        self._see_whether_looked()

    # -- its commands

    def _perform(self, seat: Seat, command: Command) -> None:
        match command:
            case Report(state):
                log.info("pod %s: %s%s", state.pod, state.state, state.reason and f", {state.reason}")
                self._report(state)
            case Keep(mark):
                self._keep(seat.pod.name, mark)
            case Signal(signal):
                task = self._tasks.create_task(self._signal(seat.pod.name, signal))
                seat.signals.add(task)
                task.add_done_callback(seat.signals.discard)
            case GiveUp():
                if seat.work is not None:
                    seat.work.cancel()
                    seat.work = None
            case _:
                if seat.work is None:  # else a look at what is being looked at
                    name = f"pod {seat.pod.name}"
                    seat.work = self._tasks.create_task(self._work(seat, command), name=name)

    async def _work(self, seat: Seat, command: Command) -> None:
        event: Event
        try:
            event = await self._result(seat, command)
        except PodFailed as error:
            event = Failed(_now(), str(error))
            if str(error) != seat.trouble:
                log.warning("pod %s: %s", seat.pod.name, str(error))
                seat.trouble = str(error)
        except Exception as error:  # of one pod: the agent and its other work go on
            event = Failed(_now(), f"the agent failed with it: {error!r}")
            log.exception("pod %s", seat.pod.name)
        seat.work = None
        self._tell(seat, event)

    async def _result(self, seat: Seat, command: Command) -> Event:
        name, engine = seat.pod.name, self._engine
        match command:
            case Look():
                container = await engine.look(name)
                return Saw(_now(), _without_secrets(container, seat.pod.spec))
            case Pull(spec):
                await engine.pull(spec)
            case Make(spec):
                await engine.make(spec)
            case Start(spec):
                await engine.start(spec)
            case Remove():
                if seat.signals:  # an engine may never answer one whose container was removed meanwhile
                    await asyncio.wait(seat.signals)
                await engine.remove(name)
            case RemoveVolume():
                await engine.remove_volume(name)
        return Done(_now())

    async def _signal(self, name: str, signal: str) -> None:
        """Whether it helped is seen at the next look, and SIGKILL is sent again then."""
        try:
            await self._engine.signal(name, signal)
        except PodFailed as error:
            log.warning("pod %s got no %s: %s", name, signal, str(error))

    def _keep(self, name: str, mark: Mark | None) -> None:
        if mark is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = mark
        try:
            self._marks.save(self._kept)
        except OSError as error:
            log.error("the marks of the pods cannot be written, they are in memory only: %s", error)

    def _measure(self, seat: Seat) -> None:
        """While its container runs. Of one that an earlier agent started, from when its spec is known."""
        spec, seen = seat.pod.spec, seat.pod.seen
        if not isinstance(seen, Runs):
            if seat.metered is not None:
                seat.metered.ended()
            seat.metered = None
        elif seat.metered is None and spec is not None and spec.version == seen.version:
            if spec.version not in seat.meters:
                seat.meters[spec.version] = self._meter(spec)
            seat.metered = seat.meters[spec.version]
            seat.metered.began()


def _without_secrets(container: Container, spec: PodSpec | None) -> Container:
    """Nothing it printed is told until it is known what its secrets are."""
    if not isinstance(container, Ended) or not container.log_tail:
        return container
    if spec is None:
        return replace(container, log_tail=())
    secrets = redaction.secrets_of(spec.env, spec.hidden)
    return replace(container, log_tail=attempt_log.shown(container.log_tail, secrets))


def _now() -> float:
    return asyncio.get_running_loop().time()
