"""What `agent.workers` holds of one worker: its present process, what was told of it, how its lives end."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.agent import process, restarts
from stoker.agent.seams import WorkerProcess
from stoker.agent.worker_wear import WearWatch
from stoker.wire.messages import Device, WorkerPhase, WorkerSpec
from stoker.worker.frames import Frame


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


def health(ended: process.Exited, life: Life) -> restarts.Event:
    """One whose context was lost in its first job is like one that dies of it: it would cost the queue job
    after job, each at once."""
    jobs = life.wear.jobs
    if life.spoiled:
        return restarts.Died(ended.at, ended.why, 0.0, served=jobs > 1)
    if ended.planned:
        return restarts.WasStopped(ended.at, ended.why, served=jobs > 0)
    if ended.ready_for is None:
        return restarts.StartFailed(ended.at, ended.why)
    return restarts.Died(ended.at, ended.why, ended.ready_for, served=jobs > 0)
