"""Pods as they are shown to their account, and the filter of lists. Pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from stoker.control.resources.endpoint_workers import EndpointWorker
from stoker.control.rules.pods import Pod, PodStatus, public_status
from stoker.control.rules.types import Endpoint, Template
from stoker.control.rules.volumes import Volume
from stoker.control.scheduling.cluster_state import NodeState


class PodFilter(Struct, frozen=True):
    """A field that is None or empty does not filter. Deleted pods are shown only if TERMINATED is requested,
    and only until their node has removed them."""

    id: str | None = None
    name: str | None = None
    image: str | None = None
    compute: str | None = None
    desired: str | None = None
    endpoint: str | None = None
    template: str | None = None
    network_volume: str | None = None
    gpu_types: Collection[str] = ()
    cpu_flavors: Collection[str] = ()
    data_centers: Collection[str] = ()


class PodView(Struct, frozen=True):
    """A pod as a caller sees it. `node` is None while it is not connected; `nano_usd` is the price of an
    hour, None if none is set."""

    pod: Pod
    state: PodStatus
    node: NodeState | None = None
    template: Template | None = None
    volume: Volume | None = None
    nano_usd: int | None = None

    @property
    def cpu_flavor(self) -> str:
        """The first flavour that a pod on CPUs requested, or ""."""
        flavors = self.pod.body.asked.get("cpuFlavorIds") or [""]
        return str(flavors[0]) if self.pod.body.compute == "CPU" else ""

    @property
    def data_center(self) -> str:
        return self.node.facts.get("data_center", "") if self.node else ""


def view(pod: Pod, node: NodeState | None) -> PodView:
    return PodView(pod, public_status(pod, connected=node is not None or not pod.node), node)


def worker_matches(worker: EndpointWorker, endpoint: Endpoint, data_center: str, wanted: PodFilter) -> bool:
    """Returns whether a worker, shown as a pod, matches the filter. It has no flavour."""
    run, gpu_type = endpoint.run, worker.gpus[0] if worker.gpus else ""
    desired = "EXITED" if worker.status == "EXITED" else "RUNNING"
    exact = [
        (wanted.id, worker.id),
        (wanted.name, endpoint.name),
        (wanted.image, run.image),
        (wanted.compute, "GPU" if gpu_type else "CPU"),
        (wanted.desired, desired),
        (wanted.endpoint, endpoint.id),
        (wanted.template, endpoint.template),
        (wanted.network_volume, run.volume),
    ]
    among = [(wanted.gpu_types, gpu_type), (wanted.cpu_flavors, ""), (wanted.data_centers, data_center)]
    return _all(exact, among)


def matches(view: PodView, wanted: PodFilter) -> bool:
    pod, body = view.pod, view.pod.body
    if (view.state.desired == "TERMINATED") != (wanted.desired == "TERMINATED"):
        return False
    exact = [
        (wanted.id, pod.id),
        (wanted.name, pod.name),
        (wanted.image, body.image),
        (wanted.compute, body.compute),
        (wanted.desired, view.state.desired),
        (wanted.endpoint, ""),
        (wanted.template, body.template),
        (wanted.network_volume, body.network_volume),
    ]
    among = [
        (wanted.gpu_types, pod.gpu_type),
        (wanted.cpu_flavors, view.cpu_flavor),
        (wanted.data_centers, view.data_center),
    ]
    return _all(exact, among)


def _all(exact: list[tuple[str | None, str]], among: list[tuple[Collection[str], str]]) -> bool:
    return all(value is None or value == has for value, has in exact) and all(
        not values or has in values for values, has in among
    )
