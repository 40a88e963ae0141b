"""The control plane: accepts jobs, assigns them to nodes, stores their results, wakes who waits.

HTTP (`control.http.calls`), gRPC (`control.nodes.grpc_stream`) and the simulation call the parts that this
class makes: `commands` and `queries` for callers, `nodes`, `live_logs` and `tunnels` for agents. It holds
nothing that it cannot rebuild: the store is the truth, and the agents report the state of the cluster.

    submit ──> store ──> claim ──> Assign ──> agent ──> reports ──> store ──> waiters ──> wait, stream, events
    (commands)     ^                                        │                   └──> webhooks      (queries)
                 └──────────── lost, refused ─────────────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from stoker import __version__
from stoker.control import store
from stoker.control.auth.callers import Callers
from stoker.control.auth.secret_references import SecretValues
from stoker.control.config.endpoints import RESERVED, Endpoints, called
from stoker.control.config.sections import check_schema
from stoker.control.config.settings import PlaneSettings
from stoker.control.context import Context
from stoker.control.errors import ControlError, UncertainCommit, level_of
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.commands import JobCommands
from stoker.control.jobs.details import JobDetails
from stoker.control.jobs.live_logs import LiveLogs
from stoker.control.jobs.queries import JobQueries
from stoker.control.jobs.uploaded_files import UploadedFiles
from stoker.control.jobs.waiters import JobChanges, JobWaiters
from stoker.control.jobs.webhooks import Post, Webhooks
from stoker.control.jobs.worker_logs import WorkerLogs
from stoker.control.large_json import LargeJson
from stoker.control.metrics.counters import Counters
from stoker.control.metrics.scrape import Scrapes
from stoker.control.nodes.answers import Answers
from stoker.control.nodes.assigned import Assigner
from stoker.control.nodes.connected_nodes import ConnectedNodes
from stoker.control.nodes.reports import NodeReports
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.signing import Signing
from stoker.control.nodes.sources import Sources
from stoker.control.nodes.tunnels import Tunnels
from stoker.control.nodes.unsent import UnsentJobs
from stoker.control.nodes.yields import Yields
from stoker.control.resources import ManagedResources
from stoker.control.resources.declared.decision import Decision, decide
from stoker.control.resources.declared.storing import store_decision
from stoker.control.resources.replays import Replays
from stoker.control.rules.types import (
    Endpoint,
)
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.desired import DesiredWorkers
from stoker.control.scheduling.desired_pods import DesiredPods, DesiredState, DesiredVolumes
from stoker.control.scheduling.dispatch import Dispatch
from stoker.control.scheduling.making_way import MakingWay
from stoker.control.scheduling.requests import Requests
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.scheduling.worker_scaling import VERSIONS, WorkerScaling
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.control.sweeper import Sweeper
from stoker.control.traces.traces import Traces

if TYPE_CHECKING:  # it comes where the configuration has certificates of nodes
    from stoker.control.nodes.certifying import NodeCertificates

log = logging.getLogger(__name__)


ALL_JOBS = 1 << 40


class Plane:
    """The control plane of one process. `run` must be running for jobs to move; everything else may be called
    from any task of its loop."""

    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        artifacts: Artifacts,
        clock: Callable[[], float],
        rng: Random,
        post: Post,
        traces: Traces | None = None,
        certificates: NodeCertificates | None = None,
    ) -> None:
        self._context = context = Context(settings, commits, clock, rng, traces)
        self._commits = commits
        self.traces, self.certificates, self.artifacts = traces, certificates, artifacts
        self.callers = Callers(commits, clock)
        self._waiters = waiters = JobWaiters()
        self.cluster = cluster = ClusterState()
        self.endpoints = endpoints = Endpoints(settings.aliases)
        self._unsent = unsent = UnsentJobs(commits, clock)
        self.sessions = sessions = NodeSessions(unsent.note)
        secrets, volumes = SecretValues(), DesiredVolumes(cluster)
        pods = DesiredPods(cluster, secrets.fill, settings)
        state = DesiredState(secrets, pods, volumes)
        sources = Sources(
            cluster, Path(settings.sources) if settings.sources else None, {*map(Path, settings.not_sent)}
        )
        desired = DesiredWorkers(cluster, pods.of_node, volumes.of_node, sessions.desire, sources.of, clock)
        self.scaling = scaling = WorkerScaling(
            cluster, endpoints, desired, secrets.fill, volumes.rooms, clock, rng
        )
        assigner = Assigner(context, artifacts, endpoints, cluster, sessions.by_node, unsent.note, waiters)
        self.dispatch = dispatch = Dispatch(context, cluster, endpoints, assigner.assign)
        self.requests = requests = Requests(cluster, clock, scaling.wake.set)
        dispatch.on_look = requests.look
        self.counters = counters = Counters(__version__, clock)
        dispatch.on_claim = counters.claimed
        scheduling = Scheduling(endpoints, cluster, scaling, dispatch, requests)
        self._changes = changes = JobChanges(waiters, dispatch, sessions.cancel, counters.changed, traces)
        self.scrapes = Scrapes(context, scheduling, counters)
        self.yields = yields = Yields(cluster, sessions)
        self.management = management = ManagedResources(
            context, scheduling, sessions, yields, changes, self.callers, state
        )
        seen, measured = management.pods.seen, management.volumes.measured
        reports = NodeReports(context, scheduling, waiters, changes, counters, seen, measured)
        answers = Answers(commits, Signing(commits, artifacts), sources, certificates)
        self.nodes = ConnectedNodes(context, scheduling, sessions, changes, reports, answers, yields, state)
        self.live_logs = live_logs = LiveLogs(self.nodes.speaks)
        self.tunnels = Tunnels(self.nodes.speaks, cluster, requests.look)
        making_way, streams = MakingWay(context, cluster, yields.ask), (live_logs, self.tunnels)
        self.sweeper = Sweeper(context, scheduling, artifacts, sessions, changes, making_way, streams)
        self.queries = queries = JobQueries(context, scheduling, artifacts, waiters, live_logs)
        self.large_json = large_json = LargeJson()
        self.details = JobDetails(commits, artifacts, cluster, clock, large_json)
        self.worker_logs = WorkerLogs(cluster, live_logs, lambda: waiters.closed)
        self.webhooks = Webhooks(context, queries, post, changes.webhook_due, counters.webhook)
        self.uploaded_files = UploadedFiles(context, artifacts)
        self.commands = JobCommands(context, scheduling, artifacts, waiters, changes, queries, large_json)
        self.replays = Replays(management, scaling.places, self.details, self.commands, rng, large_json)

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Stores the endpoints that the configuration declares, and others whose weights are locked otherwise
        than before; to be awaited before `run`."""
        now, settings = self._context.clock(), self._context.settings
        _check_schemas(endpoints)

        def begin(conn: Conn) -> tuple[tuple[Endpoint, ...], tuple[str, ...]]:
            store_decision(conn, decide(endpoints, store.list_endpoints(conn), settings), now)
            for gone in store.deleted_endpoints(conn):
                store.cancel_all(conn, gone, now, ALL_JOBS)
            return store.list_endpoints(conn), store.take_over(conn, now - settings.silence_s)

        stored, expected = await self._commits.commit(begin)
        self.endpoints.load(stored)
        _warn_of_reserved(stored)
        for name, runs in (await self._commits.read(lambda conn: store.list_runs(conn, VERSIONS))).items():
            self.scaling.note_versions(name, runs)
        await self.management.start()
        self.sweeper.expect(expected)
        for endpoint in stored:
            self.dispatch.mark(endpoint.id)

    async def reload(self, endpoints: Sequence[Endpoint], settings: PlaneSettings) -> Decision:
        """Takes over what the configuration declares now: its endpoints, and the settings that may change.
        Returns the changes of endpoints. Raises ValueError for a schema, and Unavailable; nothing has changed
        then. Raises UncertainCommit where what is stored is loaded in a moment, and the settings are as
        before."""
        _check_schemas(endpoints)
        decision = await self.management.endpoints.declare(endpoints, settings)
        _warn_of_reserved(decision.new)
        try:
            for gone in decision.deleted:
                await self.management.endpoints.cancel_jobs(gone)
        except ControlError as error:
            log.log(level_of(error), "jobs of deleted endpoints are cancelled in a moment: %s", error)
            self.management.uncertain.set()
        return decision

    async def run(self) -> None:
        """Dispatches jobs, scales workers and sweeps the store, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dispatch.run(self._claim_failed), name="dispatch")
            tasks.create_task(self.sweeper.run(), name="sweep")
            tasks.create_task(self.sweeper.tidy(), name="tidy")
            tasks.create_task(self.sweeper.scale_workers(), name="worker scaling")
            tasks.create_task(self.nodes.watch_broken(), name="broken nodes")
            tasks.create_task(self._unsent.run(self._changes.apply), name="jobs that were not sent")
            tasks.create_task(self.webhooks.run(), name="webhooks")
            tasks.create_task(self.callers.run(), name="uses of keys")
            tasks.create_task(self._watch_uncertain_commits(), name="uncertain commits")
            tasks.create_task(self.management.run(), name="reload after uncertain commits")
            tasks.create_task(self.management.audit.run(), name="audit log")
            tasks.create_task(self.management.billing.run(), name="bills")
            tasks.create_task(self.management.temporary.run(), name="temporary endpoints")
            if self.certificates is not None:
                ending = self.certificates.run(self.sessions.disconnect)
                tasks.create_task(ending, name="ends of certificates")

    def end_waits(self) -> None:
        """Answers all who wait for a job with what there is, now and from now on: this process is about to
        end, and they ask the next one. All else is served as before."""
        self._waiters.close()

    def close(self) -> None:
        """Begins the end of this process: no new jobs, no claims, no held polls. Requests to http workers go
        on, and reads are answered until the end."""
        self.commands.closed = self.queries.closed = self.dispatch.closed = True
        self.end_waits()

    async def stop(self) -> None:
        """Closes it, if it is not; what is being committed ends. Agents are informed, work on, and connect to
        the next process. With their sessions, the tunnels to http workers end."""
        self.close()
        with suppress(ControlError):
            await self._commits.commit(lambda conn: None)  # behind all that claims; then it is sent, too
        await self.callers.note()
        await self.sessions.stop()
        self.live_logs.close()

    async def _watch_uncertain_commits(self) -> None:
        """Nodes send Hello again, which compares what they hold with what is stored, and whoever waits for a
        job reads it anew."""
        uncertain = self._commits.uncertain_commit
        while True:
            await uncertain.wait()
            uncertain.clear()
            error = UncertainCommit("the database went away while it stored something")
            self.sessions.uncertain_commit(error)
            self._waiters.uncertain_commit(error)
            self.management.uncertain.set()

    async def _claim_failed(self, error: Exception) -> None:
        log.log(level_of(error), "a claim failed: %s", error)
        await asyncio.sleep(1.0)


def _check_schemas(endpoints: Sequence[Endpoint]) -> None:
    """Raises ValueError for a schema that is none."""
    for endpoint in endpoints:
        if endpoint.run.schema is not None:
            check_schema(endpoint.run.schema)


def _warn_of_reserved(endpoints: Sequence[Endpoint]) -> None:
    for endpoint in endpoints:
        if endpoint.id in RESERVED:
            log.warning(
                "endpoint %s: /v2/%s is of the management API; call the endpoint at /v2/%s, or rename it",
                *(endpoint.id, endpoint.id, called(endpoint.id)),
            )
