"""The pods that nodes shall have, in memory: what Desired names, and which devices are taken by them.

The store is the truth. Whatever changes a pod there hands it over here after the commit, and a node's Hello
reads all of its pods anew; so a new process, and one that missed the answer of a commit, comes to know them
with the node. Of two words about one pod the later stored one counts, in whatever order they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from stoker.control.floor import Floor, FloorPod
from stoker.control.pod import Pod, WantedPod
from stoker.control.pod_needs import needs, spec
from stoker.control.secret_references import Filled, UnknownSecret
from stoker.wire.messages import PodSpec, RegistryAuth

log = logging.getLogger(__name__)


class PodBook:
    """`fill` gives an account's environment with its secrets; `declared` are the registry auths of the
    configuration file."""

    def __init__(
        self,
        floor: Floor,
        fill: Callable[[str, Mapping[str, str]], Filled | UnknownSecret],
        declared: Mapping[str, RegistryAuth],
    ) -> None:
        self._floor = floor
        self._fill = fill
        self._declared = declared
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
        self._hold(pod)

    def _hold(self, pod: Pod) -> None:
        if pod.holds and not pod.forgotten:
            self._floor.pods[pod.id] = FloorPod(pod.id, pod.node, pod.devices, needs(pod.body))
        else:
            self._floor.pods.pop(pod.id, None)

    def of_node(self, node: str) -> tuple[PodSpec, ...]:
        specs = (self._spec(wanted) for wanted in self._wanted.values() if wanted.pod.node == node)
        return tuple(spec for spec in specs if spec is not None)

    def _spec(self, wanted: WantedPod) -> PodSpec | None:
        """None where its environment cannot be filled in: what is not named stays as it is."""
        pod = wanted.pod
        login = self._declared.get(pod.body.registry)
        if pod.wish != "RUNNING":
            return spec(wanted, {}, login=login)
        filled = self._fill(pod.account, pod.body.env)
        if isinstance(filled, UnknownSecret):
            log.error("pod %s is left as it is: %s", pod.id, filled.why)
            return None
        return spec(wanted, filled.env, filled.hidden, login)
