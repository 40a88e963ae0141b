"""The life of a worker's process: what the agent holds of it, and what its end means for the next process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct, field

from stoker.agent.alarm import loop_time
from stoker.agent.errors import SpawnFailed
from stoker.agent.interfaces import WorkerProcess
from stoker.agent.worker_frames import Ready
from stoker.agent.workers.lifecycle import process_machine, restarts
from stoker.agent.workers.lifecycle.recycling import RecycleWatch
from stoker.agent.workers.lifecycle.runs_ahead import AHEAD_MOST, RunsAhead
from stoker.agent.workers.lifecycle.start_stages import start_stages
from stoker.agent.workers.lifecycle.worker_context import WorkerContext
from stoker.wire.messages import AttemptKey, Device, StartStage, WorkerSpec
from stoker.worker.errors import clean
from stoker.worker.frames import Frame

JOB_SECRETS_MAX = 1024

WAITING_MOST = 8
"""Attempts that wait for one worker. Control gives it no more."""


class ProcessLife(Struct):
    """The life of one process of a worker. `device`: the first of those that it uses. `recycling`: None where
    the endpoint limits neither its jobs nor its growth. `jobs` have ended on it. `setup_ended`: it has
    reported how its setup ended. `known` are the jobs that it received and has not ended. `broken`: it broke
    the worker protocol, and its messages are ignored. `context_lost`: the context of its device is unusable.
    `serves`: what it reports that it runs. `unfit`: why an http worker is out of rotation. `ahead`: its runs
    that were sent before their turn. `stages`: those of its start, once it is ready."""

    state: process_machine.State
    process: WorkerProcess
    device: Device | None = None
    recycling: RecycleWatch | None = None
    jobs: int = 0
    slots: int = 1
    context_lost: bool = False
    setup_ended: bool = False
    known: set[AttemptKey] = field(default_factory=set)
    broken: bool = False
    serves: str = ""
    unfit: str = ""
    ahead: RunsAhead = field(default_factory=RunsAhead)
    stages: tuple[StartStage, ...] = ()

    @property
    def room_ahead(self) -> int:
        return self.ahead.room if isinstance(self.state, process_machine.Ready) else 0

    @property
    def ready_slots(self) -> int | None:
        """None unless the process is ready."""
        return self.slots if isinstance(self.state, process_machine.Ready) else None

    def became_ready(
        self, message: Ready, slots: int, weights_s: float, redacted: Callable[[str], str]
    ) -> None:
        """Notes that the worker is ready. `slots`: as many of its own as are allowed. `weights_s`: how long
        its weights were brought before. `redacted` cuts secrets out of a text."""
        self.setup_ended = True
        self.slots = slots
        self.ahead.most = min(message.ahead, AHEAD_MOST)
        self.serves = redacted(message.serves)
        if isinstance(self.state, process_machine.Starting):
            own_ms = {clean(redacted(name)): took_ms for name, took_ms in message.stages_ms.items()}
            self.stages = start_stages(weights_s, loop_time() - self.state.started, own_ms)

    def may_begin(self, key: AttemptKey) -> bool:
        """Returns whether the process can run the attempt, or may have: what was sent ahead to a process that
        has ended is in doubt until it is withdrawn."""
        return self.process.alive or key in self.ahead.sent

    def run_ahead(self, key: AttemptKey, frame: Frame) -> None:
        """Raises OSError, and sends nothing, where no descriptor is left to pass on what it carries."""
        self.ahead.send(key)
        try:
            self.process.send(frame)
        except OSError:
            self.ahead.unsend(key)
            raise
        self.known.add(key)

    def withdraw(self) -> list[AttemptKey]:
        withdrawn = self.ahead.withdraw()
        self.known.difference_update(withdrawn)
        return withdrawn

    def close(self) -> None:
        """Closes what belongs to the process, when the process has ended or the agent ends."""
        self.ahead.close()
        if self.recycling is not None:
            self.recycling.close()


class KnownSecrets:
    """The secrets that must not appear in a worker's output: those of its environment, and those of its jobs.

    What it prints is also shown to its other jobs, and may come late. So the last JOB_SECRETS_MAX secrets of
    jobs are remembered: a worker runs no more jobs than that at once.
    """

    def __init__(self, of_environment: Iterable[str]) -> None:
        self._of_environment = tuple(of_environment)
        self._of_jobs: dict[str, None] = {}

    def add(self, secret: str) -> None:
        self._of_jobs.pop(secret, None)
        self._of_jobs[secret] = None
        if len(self._of_jobs) > JOB_SECRETS_MAX:
            del self._of_jobs[next(iter(self._of_jobs))]

    def __iter__(self) -> Iterator[str]:
        return chain(self._of_environment, self._of_jobs)


def begin(
    spec: WorkerSpec,
    process: WorkerProcess,
    devices: Sequence[Device],
    context: WorkerContext[Any],
    retire: Callable[[str], None],
) -> tuple[ProcessLife, Sequence[process_machine.Command]]:
    """Begins the life of a process. `retire` is called with the reason when the process has reached a limit
    of its endpoint."""
    state, commands = process_machine.begin(loop_time(), spec.start_timeout_s)
    recycling = None
    if spec.max_jobs is not None or spec.max_growth_bytes is not None:
        recycling = RecycleWatch(spec, devices, lambda: process.pid, context.measure, context.spawn, retire)
    ahead = RunsAhead(enabled=runs_ahead(spec))
    return ProcessLife(state, process, devices[0] if devices else None, recycling, ahead=ahead), commands


def may_wait(spec: WorkerSpec) -> bool:
    """Returns whether attempts may wait for a worker of this kind: it runs one at a time. A program requests
    each job itself."""
    return spec.kind == "python" and spec.concurrency == 1


def runs_ahead(spec: WorkerSpec) -> bool:
    """Returns whether the worker may be sent runs before their turn: a process that ends after `max_jobs`
    would begin another."""
    return may_wait(spec) and spec.max_jobs is None


def found_devices(names: Iterable[str], find: Callable[[str], Device | None]) -> list[Device]:
    """Raises SpawnFailed."""
    devices = []
    for name in names:
        if (found := find(name)) is None:
            raise SpawnFailed(f"this node has no device {name}")
        devices.append(found)
    return devices


def setup_frame(spec: WorkerSpec, life: ProcessLife) -> Frame:
    about = None
    if (device := life.device) is not None:
        about = {"uuid": device.uuid, "kind": device.kind, "name": device.name, "index": device.index}
    fields: dict[str, object] = {
        "handler": spec.handler,
        "device": about,
        "concurrency": spec.concurrency,
    }
    return Frame("setup", fields, fd=life.ahead.fd)


def restart_event(
    exited: process_machine.Exited, life: ProcessLife, running: Iterable[AttemptKey]
) -> restarts.Event:
    """Returns the event of a process's end. `running` are the attempts that ran when the process ended. A
    process that lost its device's context in its first job counts as one that died of that job: otherwise the
    worker would fail job after job."""
    if life.context_lost:
        return restarts.Died(exited.at, exited.why, 0.0, served=life.jobs > 1)
    if exited.planned:
        return restarts.WasStopped(exited.at, exited.why, served=life.jobs > 0)
    if exited.ready_for is None:
        return restarts.StartFailed(exited.at, exited.why)
    ran = frozenset(key.job for key in running)
    return restarts.Died(exited.at, exited.why, exited.ready_for, served=life.jobs > 0, jobs=ran)
