"""Keeps in memory the pods and volumes that nodes shall have: those that Desired names, and the devices of
pods.

The store is authoritative. A change of a pod is passed in here after its commit, and a node's Hello loads all
pods of the node again; so a new process, or one that missed the result of a commit, knows them once the node
connects. Of two versions of a pod the one that was stored later counts, in whatever order they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from msgspec import Struct

from stoker.control.auth.secret_references import Filled, SecretValues, UnknownSecret
from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.placement import NodeRoom
from stoker.control.rules.pods import WantedPod
from stoker.control.rules.volumes import Volume, fitting
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.node_environment import of_pod
from stoker.control.scheduling.placed import PlacedPod
from stoker.control.scheduling.pod_needs import needs, spec
from stoker.wire.messages import PodSpec, VolumeSpec

log = logging.getLogger(__name__)


class DesiredPods:
    """The pods by id. `fill` fills secrets into an account's environment; `settings` have the registry auths
    of the configuration file."""

    def __init__(
        self,
        cluster: ClusterState,
        fill: Callable[[str, Mapping[str, str]], Filled | UnknownSecret],
        settings: PlaneSettings,
    ) -> None:
        self._cluster, self._fill, self._settings = cluster, fill, settings
        self._wanted: dict[str, WantedPod] = {}

    def put(self, wanted: WantedPod) -> None:
        pod = wanted.pod
        known = self._wanted.get(pod.id)
        if known is not None and known.pod.revision > pod.revision:
            return
        if pod.forgotten:
            self._wanted.pop(pod.id, None)
        else:
            self._wanted[pod.id] = wanted
        if pod.holds and not pod.forgotten:
            self._cluster.pods[pod.id] = PlacedPod(pod.id, pod.node, pod.devices, needs(pod.body))
        else:
            self._cluster.pods.pop(pod.id, None)

    def is_of(self, node: str, pod: str) -> bool:
        """Returns whether the pod was sent to this node."""
        wanted = self._wanted.get(pod)
        return wanted is not None and wanted.pod.node == node

    def of_node(self, node: str) -> tuple[PodSpec, ...]:
        specs = (self._spec(wanted) for wanted in self._wanted.values() if wanted.pod.node == node)
        return tuple(spec for spec in specs if spec is not None)

    def _spec(self, wanted: WantedPod) -> PodSpec | None:
        """Returns None if its secrets cannot be filled in: the node then leaves the pod as it is."""
        pod = wanted.pod
        login = self._settings.registries.get(pod.body.registry)
        if pod.wish != "RUNNING":
            return spec(wanted, {}, login=login)
        filled = self._fill(pod.account, pod.body.env)
        if isinstance(filled, UnknownSecret):
            log.error("pod %s is left as it is: %s", pod.id, filled.why)
            return None
        node = self._cluster.nodes.get(pod.node)
        cpus = pod.body.vcpus if pod.body.compute == "CPU" else None
        env = of_pod(node.facts if node else {}, cpus) | dict(filled.env)
        return spec(wanted, env, filled.hidden, login)


class DesiredVolumes:
    """The network volumes by id, also deleted ones, whose folders nodes remove."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self.known: dict[str, Volume] = {}

    def find(self, account: str, volume: str) -> Volume | None:
        found = self.known.get(volume)
        return found if found and found.account == account and found.deleted_at is None else None

    def rooms(self, account: str, volume: str, rooms: list[NodeRoom]) -> list[NodeRoom]:
        """Returns the rooms, closed where the volume cannot be used. `volume` may name a folder without a
        record, or nothing."""
        return fitting(volume, self.find(account, volume), rooms)

    def of_node(self, node: str) -> tuple[VolumeSpec, ...]:
        """Returns all volumes, for a node that has a volume root; also the deleted ones, whose folders it
        removes."""
        connected = self._cluster.nodes.get(node)
        if connected is None or not connected.facts.get("volumes", "").startswith("yes"):
            return ()
        return tuple(
            VolumeSpec(one.id, one.size_bytes, gone=one.deleted_at is not None) for one in self.known.values()
        )

    def is_deleted(self, node: str, volume: str) -> bool | None:
        """Returns whether this node shall remove the volume; None if the volume was not sent to it."""
        return next((one.gone for one in self.of_node(node) if one.volume == volume), None)


class DesiredState(Struct, frozen=True):
    """The desired state that management changes and scheduling reads."""

    secrets: SecretValues
    pods: DesiredPods
    volumes: DesiredVolumes
