"""The names of hardware and data centres that requests may use: those that the interface publishes, and those
that nodes have reported.

A published name is allowed even if no node has it now, because such a node may connect. Other names are
refused, with the names that are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.control.errors import BadRequest
from stoker.control.rules.submissions import abbreviated
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.store.database.commits import Commits
from stoker.control.store.database.opening import DEFAULT_ACCOUNT
from stoker.control.store.nodes.joined_nodes import NodeRecord, list_nodes

DATA_CENTER = "data_center"
"""The fact of a node that names its data centre."""

CUDA = "cuda"
"""The fact of a node that names the newest CUDA version its driver runs."""

GPU_TYPES = (
    "NVIDIA GeForce RTX 4090",
    "NVIDIA A40",
    "NVIDIA RTX A5000",
    "NVIDIA GeForce RTX 5090",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA RTX A4500",
    "NVIDIA L40S",
    "NVIDIA H200",
    "NVIDIA L4",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA RTX 4000 Ada Generation",
    "NVIDIA RTX A6000",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA RTX 2000 Ada Generation",
    "NVIDIA RTX A4000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL",
    "NVIDIA L40",
    "NVIDIA B200",
    "NVIDIA GeForce RTX 3080 Ti",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "NVIDIA GeForce RTX 3080",
    "NVIDIA GeForce RTX 3070",
    "AMD Instinct MI300X OAM",
    "NVIDIA GeForce RTX 4080 SUPER",
    "Tesla V100-PCIE-16GB",
    "Tesla V100-SXM2-32GB",
    "NVIDIA RTX 5000 Ada Generation",
    "NVIDIA GeForce RTX 4070 Ti",
    "NVIDIA RTX 4000 SFF Ada Generation",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA RTX A2000",
    "NVIDIA GeForce RTX 4080",
    "NVIDIA A30",
    "NVIDIA GeForce RTX 5080",
    "Tesla V100-FHHL-16GB",
    "NVIDIA H200 NVL",
    "Tesla V100-SXM2-16GB",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "NVIDIA A5000 Ada",
    "Tesla V100-PCIE-32GB",
    "NVIDIA  RTX A4500",  # with two spaces, as published
    "NVIDIA  A30",
    "NVIDIA GeForce RTX 3080TI",
    "Tesla T4",
    "NVIDIA RTX A30",
)

DATA_CENTERS = (
    "EU-RO-1",
    "CA-MTL-1",
    "EU-SE-1",
    "US-IL-1",
    "EUR-IS-1",
    "EU-CZ-1",
    "US-TX-3",
    "EUR-IS-2",
    "US-KS-2",
    "US-GA-2",
    "US-WA-1",
    "US-TX-1",
    "CA-MTL-3",
    "EU-NL-1",
    "US-TX-4",
    "US-CA-2",
    "US-NC-1",
    "OC-AU-1",
    "US-DE-1",
    "EUR-IS-3",
    "CA-MTL-2",
    "AP-JP-1",
    "EUR-NO-1",
    "EU-FR-1",
    "US-KS-3",
    "US-GA-1",
)

CUDA_VERSIONS = (
    "13.0",
    "12.9",
    "12.8",
    "12.7",
    "12.6",
    "12.5",
    "12.4",
    "12.3",
    "12.2",
    "12.1",
    "12.0",
    "11.8",
)

ENDPOINT_CPU_FLAVORS = ("cpu3c", "cpu3g", "cpu5c", "cpu5g")


class Catalog:
    def __init__(self, commits: Commits, cluster: ClusterState) -> None:
        self._commits, self._cluster = commits, cluster
        self._reported: dict[str, NodeRecord | NodeState] = {}

    async def load(self) -> None:
        """Loads what nodes reported that are not connected now."""
        records = await self._commits.read(lambda conn: list_nodes(conn, DEFAULT_ACCOUNT))
        self._reported = {record.id: record for record in records}

    def gpu_types(self) -> tuple[str, ...]:
        reported = (one.name for node in self._nodes() for one in node.devices if one.kind != "cpu")
        return _with(GPU_TYPES, reported)

    def cuda_versions(self) -> tuple[str, ...]:
        return _with(CUDA_VERSIONS, (node.facts.get(CUDA, "") for node in self._nodes()))

    def data_centers(self) -> tuple[str, ...]:
        return _with(DATA_CENTERS, (node.facts.get(DATA_CENTER, "") for node in self._nodes()))

    def _nodes(self) -> Iterable[NodeRecord | NodeState]:
        """Returns the last report of every node, connected or not."""
        self._reported.update(self._cluster.nodes)
        return self._reported.values()

    def check(self, field: str, requested: Iterable[str], allowed: Iterable[str]) -> None:
        """Raises BadRequest for the first name that is not allowed."""
        known = tuple(allowed)
        for one in requested:
            if one not in known:
                raise BadRequest(
                    f"{field} must hold names out of: {', '.join(known)}; got {abbreviated(one)}"
                )

    def check_gpu_types(self, requested: Iterable[str]) -> None:
        self.check("gpuTypeIds", requested, self.gpu_types())

    def check_data_centers(self, requested: Iterable[str], field: str = "dataCenterIds") -> None:
        self.check(field, requested, self.data_centers())


def _with(published: tuple[str, ...], reported: Iterable[str]) -> tuple[str, ...]:
    return published + tuple(sorted({one for one in reported if one} - set(published)))
