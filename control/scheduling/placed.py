"""Workers and pods on their nodes, as control sees them: what each holds, and a worker's jobs. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from stoker.control.rules.needs import Needs
from stoker.control.rules.queueing.ahead import PATIENCE_S, takes_ahead
from stoker.control.rules.types import Endpoint
from stoker.wire.messages import AttemptKey, Price, StartStage, WorkerSpec


class PlacedWorker(Struct):
    """A worker on a node. `spec` is None for a worker that a node holds and this process did not ask for.
    `concurrency`: how many jobs the worker takes at once; as its endpoint allows, until the worker has
    reported its own number. `needs`: what it was placed by; a whole device, where this process does not know.
    `busy`: its jobs, and since when. `ahead`: those that come after them, in order, and since when they lie
    there; `lay_ahead`: since when those did that have their slot now. `since`: when it came to be; `timed`:
    its start is being measured. `retiring`: no more jobs for it. `was_ready`: it has served. `serves`: what
    it reports that it runs. `waits_for`: what its node does before it starts it. `cold_start`: the stages of
    its start. `prices`: what its version costs. `requests`: how many an http worker has now."""

    worker: str
    endpoint: str
    version: int
    node: str
    session: int
    state: str
    spec: WorkerSpec | None = None
    devices: tuple[str, ...] = ()
    concurrency: int = 1
    needs: Needs = field(default_factory=Needs)
    reason: str = ""
    log_tail: tuple[str, ...] = ()
    busy: dict[AttemptKey, float] = field(default_factory=dict)
    ahead: dict[AttemptKey, float] = field(default_factory=dict)
    lay_ahead: dict[AttemptKey, float] = field(default_factory=dict)
    reserved: int = 0
    requests: int = 0
    idle_since: float = 0.0
    last_used: float = 0.0
    since: float = 0.0
    timed: bool = False
    retiring: bool = False
    was_ready: bool = False
    serves: str = ""
    waits_for: str = ""
    cold_start: tuple[StartStage, ...] = ()
    prices: tuple[Price, ...] = ()

    @property
    def free(self) -> int:
        if self.state != "ready" or self.retiring:
            return 0
        return max(self.concurrency - len(self.busy) - self.reserved, 0)

    def room(self, depth: int, now: float) -> int:
        """Returns how many jobs the worker may get where `depth` may lie ahead: so many behind the job that
        runs, unless it has run for long. Of a worker that takes none ahead, its free slots."""
        if self.state != "ready" or self.retiring or not takes_ahead(self.spec):
            return self.free
        if any(now - since > PATIENCE_S for since in self.busy.values()):
            return 0
        return max(1 + depth - self.jobs, 0)

    @property
    def jobs(self) -> int:
        """The number of jobs, or requests, that the worker has."""
        return len(self.busy) + len(self.ahead) + self.reserved + self.requests

    def assigned_since(self, at: float) -> int:
        """Returns how many of its busy jobs the worker got at this time or later, some before their turn."""
        return sum(self.lay_ahead.get(key, since) >= at for key, since in self.busy.items())

    @property
    def idle(self) -> bool:
        return self.state == "ready" and not self.jobs

    @property
    def ill(self) -> bool:
        """True if it served and is unhealthy now: another may serve in its place meanwhile."""
        return self.state == "unhealthy" and self.was_ready


class PlacedPod(Struct, frozen=True):
    """A pod's hold on devices of its node. It lasts as long as the pod is placed there, connected or not."""

    pod: str
    node: str
    devices: tuple[str, ...]
    needs: Needs = field(default_factory=Needs)


def waits_for(workers: Iterable[PlacedWorker]) -> str:
    """Returns what a node does before it starts the first worker that waits, or ""."""
    return next((worker.waits_for for worker in workers if worker.waits_for), "")


def stale(worker: PlacedWorker, endpoint: Endpoint) -> bool:
    """Returns whether the worker runs another version than the endpoint's, and is to be replaced."""
    return worker.version != endpoint.version


def serves(worker: PlacedWorker, endpoint: Endpoint) -> bool:
    """Returns whether the worker serves, or will: not one that is ending, or is old and not ready."""
    if worker.state == "stopping" or worker.retiring:
        return False
    return worker.state == "ready" or not stale(worker, endpoint)
