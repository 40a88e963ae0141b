"""The things that control assigned to a node in one session, which its reports may name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stoker.control.rules.nodes.validation import AssignedAttempt, AssignedWorker
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.desired_pods import DesiredState
from stoker.wire.messages import AttemptKey, HeldAttempt, Outcome, Refused, Report

log = logging.getLogger(__name__)

ENDED = 4096
"""Attempts that are over and remembered: as many as an agent's outbox holds reports."""


class AssignedToNode:
    """The things that this process assigned to one node in one session: `validation.Assignments`.

    Workers are in the cluster state, pods and volumes in the desired state. Attempts are kept here: from
    their Assign, or from the Hello that named them, until some time after their end, as an agent may still
    report one.
    """

    def __init__(
        self,
        node: str,
        cluster: ClusterState,
        desired: DesiredState,
        attempts: Mapping[AttemptKey, AssignedAttempt],
    ) -> None:
        self.attempts = dict(attempts)
        self._node = node
        self._cluster = cluster
        self._desired = desired
        self._ended: dict[AttemptKey, None] = {}
        self._logged: set[str] = set()

    # -- what was assigned

    def end(self, reports: Iterable[Report]) -> None:
        """Notes that the ends in these reports are stored."""
        for report in reports:
            if isinstance(report.body, Outcome | Refused):
                self._ended[AttemptKey(report.body.job, report.body.attempt)] = None
        while len(self._ended) > ENDED:
            key = next(iter(self._ended))
            del self._ended[key]
            self.attempts.pop(key, None)

    def worker(self, worker: str) -> AssignedWorker | None:
        placed = self._cluster.workers.get(worker)
        if placed is None or placed.node != self._node:
            return None
        slots = placed.spec.concurrency if placed.spec is not None else 2**32
        return AssignedWorker(placed.endpoint, placed.version, slots, placed.devices)

    def pod(self, pod: str) -> bool:
        return self._desired.pods.is_of(self._node, pod)

    def volume(self, volume: str) -> bool | None:
        return self._desired.volumes.is_deleted(self._node, volume)

    # -- messages

    def holds(self, attempt: HeldAttempt) -> bool:
        """Returns whether an attempt that a Hello names takes a slot of a worker of this node."""
        if attempt.key not in self.attempts:
            which = f"attempt {attempt.attempt} of job {attempt.job[:80]!r}"
            self.log_once("Hello", f"{which} is not one that control gave to this node")
            return False
        placed = self._cluster.workers.get(attempt.worker)
        if placed is not None and placed.node != self._node:
            self.log_once(
                "Hello", f"worker {attempt.worker[:80]!r} is not one that control gave to this node"
            )
        return placed is not None and placed.node == self._node

    def log_once(self, kind: str, why: str) -> None:
        """Logs one line for each kind of message and session: a flood of them does not fill the log."""
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning(
                "node %s sent %s that was refused (further ones are not logged): %s", self._node, kind, why
            )
