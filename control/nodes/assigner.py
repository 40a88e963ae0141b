"""Makes the Assign of a claimed job and sends it to the job's node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.waiters import JobWaiters
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.rules.submissions import S3Config
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.types import Claimed
from stoker.wire import names
from stoker.wire.messages import Assign, Grant


class Assigner:
    def __init__(
        self,
        settings: PlaneSettings,
        artifacts: Artifacts,
        cluster: ClusterState,
        sessions: NodeSessions,
        waiters: JobWaiters,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._cluster = cluster
        self._sessions = sessions
        self._waiters = waiters
        self._clock = clock

    def assign(self, claimed: Claimed) -> None:
        self._waiters.changed(claimed.job)  # whoever follows its logs has a node to ask now
        session = self._sessions.by_node.get(claimed.node)
        if session is None:
            return
        worker = self._cluster.workers.get(claimed.worker)
        prefix = names.attempt_prefix(claimed.endpoint, claimed.job, claimed.attempt)
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
                job=claimed.job,
                attempt=claimed.attempt,
            ),
            prices=worker.prices if worker else (),
            files_grant=self._own_grant(claimed.s3, prefix, claimed.account) if claimed.s3 else None,
            private_inputs=self._settings.allow_private_addresses,
        )
        session.assign(assign)

    def _own_grant(self, own: S3Config, prefix: str, account: str) -> Grant:
        """The caller's own bucket. The caller chose its address: only the operator may allow private ones."""
        folder = f"{own.object_path.strip('/')}/" if own.object_path.strip("/") else ""
        return Grant(
            endpoint_url=own.endpoint_url,
            public_endpoint=own.endpoint_url,
            region="",
            bucket=own.bucket,
            prefix=folder + prefix,
            access_id=own.access_id,
            access_secret=own.access_secret,
            guarded=not self._settings.allow_private_addresses,
            account=account,
        )
