"""Workers of endpoints, as they are shown. Pure."""

from __future__ import annotations

from msgspec import Struct

from stoker.control.rules.types import Endpoint
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import StartStage


class EndpointWorker(Struct, frozen=True):
    """A worker of an endpoint. `since` is when it was created, 0.0 if that is unknown. A THROTTLED worker is
    on no node. `log`: the last lines of its last process, until another is ready. `cold_start`: the stages of
    its start; none where its node has not reported them. `serves`: what it reports that it runs."""

    id: str
    status: str
    reason: str
    stale: bool
    version: int
    node: str
    gpus: tuple[str, ...]
    since: float
    log: tuple[str, ...] = ()
    cold_start: tuple[StartStage, ...] = ()
    serves: str = ""


def endpoint_worker(worker: PlacedWorker, endpoint: Endpoint, node: NodeState | None) -> EndpointWorker:
    devices = node.devices if node is not None else ()
    gpus = tuple(one.name for one in devices if one.uuid in worker.devices and one.kind != "cpu")
    stale = worker.version != endpoint.version
    status = "RUNNING" if worker.jobs else _STATUS.get(worker.state, "EXITED")
    return EndpointWorker(
        worker.worker,
        status,
        worker.reason,
        stale,
        worker.version,
        worker.node,
        gpus,
        worker.since,
        worker.log_tail,
        worker.cold_start,
        worker.serves,
    )


_STATUS = {"starting": "INITIALIZING", "ready": "IDLE", "unhealthy": "UNHEALTHY"}
