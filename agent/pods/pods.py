"""Supervises the pods of this node: runs `agent.pods.pod_machine` for each, over a PodEngine.

    Desired ──> Pods ──one command at a time for each pod──> PodEngine
    reports <────'  <── each container's state, every LOOK_S ────'

- Pods outlive the agent, which stops none of them when it ends. The next agent finds them by their label,
  reports them in its first Hello, and leaves them alone until control has sent what it desires.
- The marks (`agent.pods.pod_machine`) are saved in one small file before the command that they belong to.
- A pod holds its devices while its container runs, and that time is metered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.host.logs import attempt_log, redaction
from stoker.agent.host.logs.engine_log import EngineLog, FollowedLog
from stoker.agent.pods import pod_machine as pod
from stoker.agent.pods.events import (
    Command,
    Container,
    Done,
    Ended,
    Event,
    Failed,
    GiveUp,
    Look,
    Make,
    Mark,
    Pull,
    Remove,
    RemoveVolume,
    ReportPod,
    Runs,
    SaveMark,
    Seen,
    Signal,
    Start,
    Tick,
    Wished,
)
from stoker.agent.pods.interfaces import PodEngine, PodFailed
from stoker.agent.pods.states import Gone, PodLife
from stoker.agent.workers.lifecycle.metering import Metering
from stoker.agent.workers.lifecycle.restarts import back_off
from stoker.wire.messages import HeldPod, PodSpec, PodState

log = logging.getLogger(__name__)

LOOK_S = 2.0


class Marks(Protocol):
    """The saved marks. They are on disk when `save` returns. A damaged file loads as no marks."""

    def load(self) -> dict[str, Mark]: ...

    def save(self, marks: Mapping[str, Mark]) -> None:
        """Replaces all marks. Raises OSError if the disk is full."""


class MarksInMemory:
    """The marks of an agent that runs no pods, or of a test."""

    def __init__(self) -> None:
        self.kept: dict[str, Mark] = {}

    def load(self) -> dict[str, Mark]:
        return dict(self.kept)

    def save(self, marks: Mapping[str, Mark]) -> None:
        self.kept = dict(marks)


class SupervisedPod(Struct, eq=False):
    """A pod with its timer. `work` performs a command; `meters` are by version."""

    pod: PodLife
    alarm: Alarm
    work: asyncio.Task[None] | None = None
    signals: set[asyncio.Task[None]] = field(default_factory=set)
    answered: bool = False  # the engine has reported it, or has failed to
    unnamed: bool = False  # a warning was logged that control does not name it
    last_error: str = ""
    meters: dict[int, Metering] = field(default_factory=dict)
    metered: Metering | None = None


class Pods:
    """The pods of this node. `looked` is set once the engine has reported, or failed to report, every pod
    that an earlier agent left. `meter` makes a meter for one version of a pod."""

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
        self._saved: dict[str, Mark] = {}
        self._supervised: dict[str, SupervisedPod] = {}
        self._tasks: asyncio.TaskGroup
        self._found = False
        self._any_pods = asyncio.Event()
        self.looked = asyncio.Event()

    async def run(self) -> NoReturn:
        """Runs until cancelled; the containers stay as they are."""
        self._saved = self._marks.load()
        async with asyncio.TaskGroup() as self._tasks:
            for name, mark in self._saved.items():
                self._supervise(name, mark)
            self._tasks.create_task(self._find(), name="find pods")
            while True:
                if not self._supervised:
                    self._any_pods.clear()
                    await self._any_pods.wait()
                await asyncio.sleep(self._look_s)
                for supervised in list(self._supervised.values()):
                    if pod.watched(supervised.pod):
                        self._step(supervised, Tick(loop_time()))
        raise AssertionError("a group with an endless task does not end")

    def discard(self) -> None:
        """Stops all timers and meters."""
        for supervised in self._supervised.values():
            supervised.alarm.set(None)
            for meter in supervised.meters.values():
                meter.discard()

    # -- for the session

    def log_of(self, name: str) -> FollowedLog | None:
        """Returns the log of a pod that control wants here, or None: without a spec its secrets are
        unknown."""
        supervised = self._supervised.get(name)
        if supervised is None or (spec := supervised.pod.spec) is None:
            return None
        secrets = redaction.secrets_of(spec.env, spec.hidden)
        return FollowedLog(EngineLog(partial(self._engine.log, name)), secrets)

    def desire(self, specs: tuple[PodSpec, ...]) -> None:
        """Sets what control wants of each pod. Nothing is done with pods that are not named."""
        named = {spec.pod: spec for spec in specs}
        for name, spec in named.items():
            supervised = self._supervised.get(name) or self._supervise(name, None)
            self._step(supervised, Wished(loop_time(), spec))
        for name, supervised in list(self._supervised.items()):
            if name not in named:
                if not supervised.unnamed and not isinstance(supervised.pod.doing, Gone):
                    log.warning("control does not name pod %s; it is left as it is", name)
                    supervised.unnamed = True
                self._step(supervised, Wished(loop_time(), None))

    def held(self) -> tuple[HeldPod, ...]:
        found = (pod.held(supervised.pod) for supervised in self._supervised.values())
        return tuple(one for one in found if one is not None)

    # -- its pods

    async def _find(self) -> None:
        failures = 0
        while True:
            try:
                found = await self._engine.found()
                break
            except PodFailed as error:
                log.warning("the pods of this node cannot be listed yet: %s", error)
            failures += 1
            self._found = True
            self._check_looked()
            await asyncio.sleep(back_off(failures))
        for name, mark in found.items():
            if name not in self._supervised:
                self._supervise(name, mark)
        self._found = True
        self._check_looked()

    def _supervise(self, name: str, mark: Mark | None) -> SupervisedPod:
        first, commands = pod.begin(name, mark)
        alarm = Alarm(lambda at: self._step(supervised, Tick(at)))
        supervised = self._supervised[name] = SupervisedPod(first, alarm)
        self._any_pods.set()
        for command in commands:
            self._perform(supervised, command)
        return supervised

    def _check_looked(self) -> None:
        if self._found and all(supervised.answered for supervised in self._supervised.values()):
            self.looked.set()

    def _step(self, supervised: SupervisedPod, event: Event) -> None:
        if isinstance(event, Seen | Failed):
            supervised.answered = True
        supervised.pod, commands = pod.step(supervised.pod, event)
        for command in commands:
            self._perform(supervised, command)
        supervised.alarm.set(pod.wake_at(supervised.pod))
        self._measure(supervised)
        if isinstance(supervised.pod.doing, Gone) and supervised.pod.spec is None:
            self._supervised.pop(supervised.pod.name, None)
        self._check_looked()

    # -- its commands

    def _perform(self, supervised: SupervisedPod, command: Command) -> None:
        match command:
            case ReportPod(state):
                log.info("pod %s: %s%s", state.pod, state.state, state.reason and f", {state.reason}")
                self._report(state)
            case SaveMark(mark):
                self._save_mark(supervised.pod.name, mark)
            case Signal(signal):
                task = self._tasks.create_task(self._signal(supervised.pod.name, signal))
                supervised.signals.add(task)
                task.add_done_callback(supervised.signals.discard)
            case GiveUp():
                if supervised.work is not None:
                    supervised.work.cancel()
                    supervised.work = None
            case _:
                if supervised.work is None:  # else it is a second look while the first is under way
                    name = f"pod {supervised.pod.name}"
                    supervised.work = self._tasks.create_task(self._work(supervised, command), name=name)

    async def _work(self, supervised: SupervisedPod, command: Command) -> None:
        event: Event
        try:
            event = await self._result(supervised, command)
        except PodFailed as error:
            event = Failed(loop_time(), str(error))
            if str(error) != supervised.last_error:
                log.warning("pod %s: %s", supervised.pod.name, error)
                supervised.last_error = str(error)
        except Exception as error:  # one pod's failure must not end the agent
            event = Failed(loop_time(), f"the agent failed with it: {error!r}")
            log.exception("pod %s", supervised.pod.name)
        supervised.work = None
        self._step(supervised, event)

    async def _result(self, supervised: SupervisedPod, command: Command) -> Event:
        name, engine = supervised.pod.name, self._engine
        match command:
            case Look():
                container = await engine.look(name)
                return Seen(loop_time(), _redacted(container, supervised.pod.spec))
            case Pull(spec):
                await engine.pull(spec)
            case Make(spec):
                await engine.make(spec)
            case Start(spec):
                await engine.start(spec)
            case Remove():
                if supervised.signals:  # an engine may never answer a signal to a removed container
                    await asyncio.wait(supervised.signals)
                await engine.remove(name)
            case RemoveVolume():
                await engine.remove_volume(name)
        return Done(loop_time())

    async def _signal(self, name: str, signal: str) -> None:
        """Sends a signal to the pod's container. A failure is only logged: the next look shows whether the
        container has ended, and SIGKILL is repeated."""
        try:
            await self._engine.signal(name, signal)
        except PodFailed as error:
            log.warning("%s could not be sent to pod %s: %s", signal, name, error)

    def _save_mark(self, name: str, mark: Mark | None) -> None:
        if mark is None:
            self._saved.pop(name, None)
        else:
            self._saved[name] = mark
        try:
            self._marks.save(self._saved)
        except OSError as error:
            log.error("the pods' marks cannot be saved and are kept in memory only: %s", error)

    def _measure(self, supervised: SupervisedPod) -> None:
        """Meters the pod while its container runs; if an earlier agent started it, from when its spec is
        known."""
        spec, seen = supervised.pod.spec, supervised.pod.seen
        if not isinstance(seen, Runs):
            if supervised.metered is not None:
                supervised.metered.ended()
            supervised.metered = None
        elif supervised.metered is None and spec is not None and spec.version == seen.version:
            if spec.version not in supervised.meters:
                supervised.meters[spec.version] = self._meter(spec)
            supervised.metered = supervised.meters[spec.version]
            supervised.metered.began()


def _redacted(container: Container, spec: PodSpec | None) -> Container:
    """Removes secrets from its log. Without a spec the secrets are unknown, and the whole log is removed."""
    if not isinstance(container, Ended) or not container.log_tail:
        return container
    if spec is None:
        return replace(container, log_tail=())
    secrets = redaction.secrets_of(spec.env, spec.hidden)
    return replace(container, log_tail=attempt_log.last_lines(container.log_tail, secrets))
