"""The scheduling of a process: the parts that together decide which worker runs which job."""

from __future__ import annotations

from msgspec import Struct

from stoker.control.config.endpoints import Endpoints
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.dispatch import Dispatch
from stoker.control.scheduling.requests import Requests
from stoker.control.scheduling.worker_scaling import WorkerScaling


class Scheduling(Struct, frozen=True):
    """The scheduling of jobs: the endpoints, the workers of the cluster, the scaling of these, the dispatch
    of queued jobs, and the requests to http workers."""

    endpoints: Endpoints
    cluster: ClusterState
    scaling: WorkerScaling
    dispatch: Dispatch
    requests: Requests
