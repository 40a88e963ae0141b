"""What `agent.workers` holds of one worker: its present process, what was told of it, how its lives end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from stoker.agent import process, restarts
from stoker.agent.seams import WorkerProcess
from stoker.agent.worker_wear import WearWatch
from stoker.wire.messages import AttemptKey, Device, WorkerPhase, WorkerSpec
from stoker.worker.frames import Frame

BROUGHT_MAX = 1024


@dataclass(slots=True)
class Life:
    """One process of a worker. `spoiled`: its device's context is lost."""

    state: process.State
    handle: WorkerProcess
    wear: WearWatch
    slots: int = 1
    spoiled: bool = False


@dataclass(slots=True)
class News:
    """What control was last told."""

    phase: WorkerPhase = "starting"
    reason: str = ""
    log_tail: tuple[str, ...] = ()


@dataclass(slots=True)
class Standing:
    wanted: bool = True
    history: restarts.History = field(default_factory=restarts.History)


class Secrets:
    """What nobody may read of all that a worker says: its environment's, and those that its jobs bring. What
    it prints is shown to its other jobs, too, and may come late, so the last BROUGHT_MAX are remembered: as
    many as a worker may have jobs at once."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = tuple(given)
        self._brought: dict[str, None] = {}

    def add(self, secret: str) -> None:
        self._brought.pop(secret, None)
        self._brought[secret] = None
        if len(self._brought) > BROUGHT_MAX:
            del self._brought[next(iter(self._brought))]

    def __iter__(self) -> Iterator[str]:
        return chain(self._given, self._brought)


def setup_frame(spec: WorkerSpec, device: Device | None) -> Frame:
    about = None
    if device is not None:
        about = {"uuid": device.uuid, "kind": device.kind, "name": device.name, "index": device.index}
    fields: dict[str, object] = {
        "handler": spec.handler,
        "device": about,
        "concurrency": spec.concurrency,
    }
    return Frame("setup", fields)


def health(ended: process.Exited, life: Life, running: Iterable[AttemptKey]) -> restarts.Event:
    """`running`: the attempts as it ended. One whose context was lost in its first job is like one that dies
    of it: it would cost the queue job after job, each at once."""
    jobs = life.wear.jobs
    if life.spoiled:
        return restarts.Died(ended.at, ended.why, 0.0, served=jobs > 1)
    if ended.planned:
        return restarts.WasStopped(ended.at, ended.why, served=jobs > 0)
    if ended.ready_for is None:
        return restarts.StartFailed(ended.at, ended.why)
    ran = frozenset(key.job for key in running)
    return restarts.Died(ended.at, ended.why, ended.ready_for, served=jobs > 0, jobs=ran)
