"""Pods as their account may see them, and which of them a list is asked for. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stoker.control.floor import FloorNode
from stoker.control.management.endpoints import Worker
from stoker.control.pod import Pod, Reading, reads
from stoker.control.types import Endpoint, Template
from stoker.control.volume import Volume


@dataclass(frozen=True, slots=True)
class PodFilter:
    """What is None or empty asks for nothing. Pods that were deleted are seen only where TERMINATED is asked
    for, and only until their node has removed what it had of them."""

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


@dataclass(frozen=True, slots=True)
class PodView:
    """`node` is there while it is connected; `nano_usd` is the price of an hour, None where none is set."""

    pod: Pod
    reading: Reading
    node: FloorNode | None = None
    template: Template | None = None
    volume: Volume | None = None
    nano_usd: int | None = None

    @property
    def cpu_flavor(self) -> str:
        """The first that was asked for, of a pod on CPUs."""
        flavors = self.pod.body.asked.get("cpuFlavorIds") or [""]
        return str(flavors[0]) if self.pod.body.compute == "CPU" else ""

    @property
    def data_center(self) -> str:
        return self.node.facts.get("data_center", "") if self.node else ""


def view(pod: Pod, node: FloorNode | None) -> PodView:
    return PodView(pod, reads(pod, connected=node is not None or not pod.node), node)


def worker_matches(worker: Worker, endpoint: Endpoint, data_center: str, asked: PodFilter) -> bool:
    """A worker as if it were a pod; it has no flavour."""
    run, gpu_type = endpoint.run, worker.gpus[0] if worker.gpus else ""
    desired = "EXITED" if worker.status == "EXITED" else "RUNNING"
    exact = [
        (asked.id, worker.id),
        (asked.name, endpoint.name),
        (asked.image, run.image),
        (asked.compute, "GPU" if gpu_type else "CPU"),
        (asked.desired, desired),
        (asked.endpoint, endpoint.id),
        (asked.template, endpoint.template),
        (asked.network_volume, run.volume),
    ]
    among = [(asked.gpu_types, gpu_type), (asked.cpu_flavors, ""), (asked.data_centers, data_center)]
    return _all(exact, among)


def matches(view: PodView, asked: PodFilter) -> bool:
    pod, body = view.pod, view.pod.body
    if (view.reading.desired == "TERMINATED") != (asked.desired == "TERMINATED"):
        return False
    exact = [
        (asked.id, pod.id),
        (asked.name, pod.name),
        (asked.image, body.image),
        (asked.compute, body.compute),
        (asked.desired, view.reading.desired),
        (asked.endpoint, ""),
        (asked.template, body.template),
        (asked.network_volume, body.network_volume),
    ]
    among = [
        (asked.gpu_types, pod.gpu_type),
        (asked.cpu_flavors, view.cpu_flavor),
        (asked.data_centers, view.data_center),
    ]
    return _all(exact, among)


def _all(exact: list[tuple[str | None, str]], among: list[tuple[Collection[str], str]]) -> bool:
    return all(wanted is None or wanted == has for wanted, has in exact) and all(
        not wanted or has in wanted for wanted, has in among
    )
