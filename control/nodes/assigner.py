"""The Assign of a claimed job: its input, its grants, and what its attempt may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stoker.control.config.endpoints import Endpoints
from stoker.control.context import Context
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.waiters import JobWaiters
from stoker.control.nodes.session import NodeSession
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import Claimed
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.wire import names
from stoker.wire.messages import Assign, AttemptKey, Grant


class Assigner:
    """Makes the Assign of a claimed job, and passes it to the session of the job's node; `sessions` are by
    node. `unsent` is called for a job whose node has none any more."""

    def __init__(
        self,
        context: Context,
        artifacts: Artifacts,
        endpoints: Endpoints,
        cluster: ClusterState,
        sessions: Mapping[str, NodeSession],
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
