"""The context of all workers: what every worker needs of its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from stoker.agent import worker_frames
from stoker.agent.host.devices.interfaces import DeviceWorker
from stoker.agent.host.devices.watch import DeviceWatch
from stoker.agent.host.storage.source_folders import Fetch, SourceFolders
from stoker.agent.interfaces import Spawner
from stoker.agent.weights.interfaces import Weights
from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.lifecycle.recycling import Measure, Spawn
from stoker.wire.messages import AttemptKey, Device, Usage, WorkerState

W = TypeVar("W", bound=DeviceWorker)


class WorkerContext(Struct, Generic[W], frozen=True, kw_only=True):
    """The context of workers of the class W. `on_message` is called for each message about a job, `on_exit`
    once for each process, after its messages, with the runs that it was sent ahead and has not begun;
    `on_closed` when attempts wait for a worker that takes nothing new; `on_gone` when control no longer
    desires the worker and it has no process. `spawn` runs a coroutine in the agent's task group."""

    spawner: Spawner
    devices: DeviceWatch[W]
    ladder: StopLadder
    find_device: Callable[[str], Device | None]
    report: Callable[[WorkerState | Usage], object]
    on_message: Callable[[W, worker_frames.JobMessage | worker_frames.Retire], None]
    on_exit: Callable[[W, str, bool, Sequence[AttemptKey]], None]
    on_closed: Callable[[W, str], None]
    on_gone: Callable[[W], None]
    paused: Callable[[], bool]
    spawn: Spawn
    measure: Measure
    weights: Weights
    sources: SourceFolders
    fetch_source: Fetch
    boot: str
    wall: Callable[[], float]
