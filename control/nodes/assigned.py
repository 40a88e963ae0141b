"""The assignments of control to nodes: the Assign of a claimed job, and what a node's reports may name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from stoker.control.config.endpoints import Endpoints
from stoker.control.context import Context
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.waiters import JobWaiters
from stoker.control.rules.nodes.validation import AssignedAttempt, AssignedWorker
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import Claimed
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.desired_pods import DesiredState
from stoker.wire.messages import Assign, AttemptKey, Grant, HeldAttempt, Outcome, Refused, Report
from stoker.wire.object_keys import attempt_prefix

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
        self._node, self._cluster, self._desired = node, cluster, desired
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


class TakesAssigns(Protocol):
    """A session, to which an Assign is passed."""

    def assign(self, assign: Assign) -> None: ...


class Assigner:
    """Makes the Assign of a claimed job, and passes it to the session of the job's node; `sessions` are by
    node. `unsent` is called for a job whose node has none any more."""

    def __init__(
        self,
        context: Context,
        artifacts: Artifacts,
        endpoints: Endpoints,
        cluster: ClusterState,
        sessions: Mapping[str, TakesAssigns],
        unsent: Callable[[str, AttemptKey], None],
        waiters: JobWaiters,
    ) -> None:
        self._settings, self._clock, self._traces = context.settings, context.clock, context.traces
        self._artifacts, self._endpoints, self._cluster = artifacts, endpoints, cluster
        self._sessions, self._unsent, self._waiters = sessions, unsent, waiters

    def assign(self, claimed: Claimed) -> None:
        self._waiters.changed(claimed.job)  # readers that follow its logs have a node now
        session = self._sessions.get(claimed.node)
        if session is None:
            self._unsent(claimed.node, AttemptKey(claimed.job, claimed.attempt))
            return
        worker, traceparent = self._cluster.workers.get(claimed.worker), claimed.traceparent or ""
        if traceparent and self._traces is not None:
            traceparent = self._traces.handed_on(claimed)
        endpoint = self._endpoints.by_id.get(claimed.endpoint)
        prefix = attempt_prefix(claimed.endpoint, claimed.job, claimed.attempt)
        assign = Assign(
            job=claimed.job,
            attempt=claimed.attempt,
            worker=claimed.worker,
            input=claimed.input,
            input_ref=claimed.input_ref,
            execution_timeout_ms=claimed.execution_timeout_ms,
            ttl_s=max(claimed.expires_at - self._clock(), 0.0),
            grant=replace(
                self._artifacts.grant,
                prefix=prefix,
                account=claimed.account,
                key=claimed.api_key,
                endpoint=claimed.endpoint,
                job=claimed.job,
                attempt=claimed.attempt,
            ),
            prices=worker.prices if worker else (),
            files_grant=self._own_grant(claimed.s3, prefix, claimed) if claimed.s3 else None,
            private_inputs=self._settings.allow_private_addresses,
            traceparent=traceparent,
            saved=claimed.saved,
            keeps_case=endpoint is not None and endpoint.keep_cases,
            stop_after=endpoint.replay.stop_after if endpoint is not None and endpoint.replay else 0,
        )
        session.assign(assign)

    def _own_grant(self, own: S3Config, prefix: str, claimed: Claimed) -> Grant:
        """Returns the grant of the caller's own bucket. The caller chose its address: only the operator may
        allow private ones."""
        folder = f"{own.object_path.strip('/')}/" if own.object_path.strip("/") else ""
        return Grant(
            endpoint_url=own.endpoint_url,
            public_endpoint=own.endpoint_url,
            region=own.region,
            bucket=own.bucket,
            prefix=folder + prefix,
            access_id=own.access_id,
            access_secret=own.access_secret,
            guarded=not self._settings.allow_private_addresses,
            account=claimed.account,
            key=claimed.api_key,
            endpoint=claimed.endpoint,
        )
