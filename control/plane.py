"""The control plane: takes jobs in, gives them to nodes, takes results back, tells who waits.

HTTP (`control.api`), gRPC (`control.grpc_stream`) and the simulation all call this class and nothing below
it. It holds nothing that it cannot rebuild: the store is the truth, the floor is what the agents tell.

    submit ──> store ──> claim ──> Assign ──> agent ──> reports ──> store ──> bells ──> wait, stream, events
    (intake)     ^                                        │                   └──> webhooks    (views)
                 └──────────── lost, refused ─────────────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from random import Random

from stoker.control import store
from stoker.control.access import Caller
from stoker.control.artifacts import Artifacts
from stoker.control.bells import Bells
from stoker.control.callers import Callers
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.doubt import WatchedCommits
from stoker.control.endpoints import Endpoints
from stoker.control.errors import ControlError, InDoubt
from stoker.control.floor import Floor
from stoker.control.given_files import GivenFiles
from stoker.control.inputs import check_schema
from stoker.control.intake import Intake
from stoker.control.live_logs import LiveLogs
from stoker.control.management import Management
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import VERSIONS, Staffing
from stoker.control.store import Conn
from stoker.control.sweeper import Sweeper
from stoker.control.types import (
    AttemptLog,
    Claimed,
    Cursor,
    Endpoint,
    GivenFile,
    Health,
    JobView,
    Listing,
    LogEvent,
    Page,
    S3Config,
    StreamEvent,
    StreamPoll,
    Submission,
)
from stoker.control.views import Views
from stoker.control.webhooks import Post, Webhooks
from stoker.wire import names
from stoker.wire.messages import Assign, Desired, Grant
from stoker.wire.streams import ControlLogs, ControlStream

log = logging.getLogger(__name__)


ALL_JOBS = 1 << 40


class Plane:
    """`run` must be running for jobs to move; everything else may be called from any task of its loop."""

    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        artifacts: Artifacts,
        clock: Callable[[], float],
        rng: Random,
        post: Post,
    ) -> None:
        self._settings = settings
        self._commits = commits = WatchedCommits(commits, self._in_doubt)
        self._artifacts = artifacts
        self._clock = clock
        self.callers = Callers(commits, clock)
        self._bells = bells = Bells()
        self.floor = floor = Floor()
        self.endpoints = Endpoints(settings.aliases)
        self.dispatch = Dispatch(floor, commits, self.endpoints.by_id, self._assign, clock)
        self.staffing = Staffing(floor, self.endpoints.all, self._desire, clock, rng)
        self.nodes = Nodes(settings, commits, floor, self.dispatch, self.staffing, bells, clock)
        self.sweeper = Sweeper(settings, commits, artifacts, self.staffing, self.dispatch, self.nodes, clock)
        self.live_logs = LiveLogs(self.nodes.speaks)
        self.views = Views(
            commits, artifacts, bells, self.endpoints, floor, self.staffing, self.live_logs, clock
        )
        self.webhooks = Webhooks(commits, self.views, post, self.nodes.webhook_due, clock)
        self.management = Management(
            settings,
            commits,
            self.endpoints,
            floor,
            self.staffing,
            self.dispatch,
            self.nodes,
            clock,
            rng,
            callers=self.callers,
        )
        self.nodes.volume_used = self.management.volumes.measured
        self.nodes.pods_seen = self.management.pods.seen
        self._given_files = GivenFiles(commits, artifacts, clock, rng)
        self.intake = Intake(
            settings,
            commits,
            artifacts,
            bells,
            self.endpoints,
            self.dispatch,
            self.staffing,
            self.nodes,
            self.views,
            clock,
            rng,
        )

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Stores the endpoints that the configuration declares; to be awaited before `run`."""
        now = self._clock()
        for endpoint in endpoints:
            if endpoint.run.schema is not None:
                check_schema(endpoint.run.schema)

        def begin(conn: Conn) -> tuple[tuple[Endpoint, ...], tuple[str, ...]]:
            declared = {endpoint.id for endpoint in endpoints}
            for endpoint in store.list_endpoints(conn):
                if endpoint.origin == "file" and endpoint.id not in declared:
                    store.remove_endpoint(conn, endpoint.id, now)
            for endpoint in endpoints:
                store.put_endpoint(conn, endpoint, now)
            for gone in store.deleted_endpoints(conn):
                store.cancel_all(conn, gone, now, ALL_JOBS)
            return store.list_endpoints(conn), store.take_over(conn, now - self._settings.silence_s)

        stored, expected = await self._commits.commit(begin)
        self.endpoints.load(stored)
        for name, runs in (await self._commits.read(lambda conn: store.list_runs(conn, VERSIONS))).items():
            self.staffing.know(name, runs)
        await self.management.start()
        self.sweeper.expect(expected)
        for endpoint in stored:
            self.dispatch.mark(endpoint.id)

    async def run(self) -> None:
        """Dispatch, staffing and sweeping, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dispatch.run(self._claim_failed), name="dispatch")
            tasks.create_task(self.sweeper.run(), name="sweep")
            tasks.create_task(self.sweeper.tidy(), name="tidy")
            tasks.create_task(self.sweeper.staff(), name="staff")
            tasks.create_task(self.nodes.watch_broken(), name="broken nodes")
            tasks.create_task(self.webhooks.run(), name="webhooks")
            tasks.create_task(self.callers.run(), name="uses of keys")
            tasks.create_task(self.management.run(), name="doubts")
            tasks.create_task(self.management.audit.run(), name="audit log")
            tasks.create_task(self.management.billing.run(), name="bills")

    async def stop(self) -> None:
        """This process is about to end: no new jobs, no claims, nobody held; what is being committed ends.
        Agents are told, work on, and come back to the next process. Reads are answered until the end."""
        self.intake.closed = self.dispatch.closed = True
        self._bells.close()
        with suppress(ControlError):
            await self._commits.commit(lambda conn: None)  # behind all that claims; then it is sent, too
        await self.callers.note()
        await self.nodes.stop()
        self.live_logs.close()

    def _in_doubt(self, doubt: InDoubt) -> None:
        self.nodes.doubt(doubt)
        self._bells.doubt(doubt)
        self.management.doubted.set()

    async def _claim_failed(self, error: Exception) -> None:
        log.error("a claim failed: %s", error)
        await asyncio.sleep(1.0)

    # -- what a caller does

    async def submit(self, account: str, endpoint: str, submission: Submission, *, sync: bool) -> JobView:
        return await self.intake.submit(account, endpoint, submission, sync=sync)

    async def run_sync(self, account: str, endpoint: str, submission: Submission, seconds: float) -> JobView:
        running = self.intake.run_sync(account, endpoint, submission, seconds)
        del submission
        return await running

    async def cancel(self, account: str, endpoint: str, job: str) -> JobView:
        return await self.intake.cancel(account, endpoint, job)

    async def retry(self, account: str, endpoint: str, job: str) -> JobView:
        return await self.intake.retry(account, endpoint, job)

    async def purge(self, account: str, endpoint: str) -> int:
        return await self.intake.purge(account, endpoint)

    async def status(self, account: str, endpoint: str, job: str, ttl_ms: int | None = None) -> JobView:
        return await self.views.status(account, endpoint, job, ttl_ms)

    async def view(self, account: str, endpoint: str, job: str) -> JobView:
        return await self.views.view(account, endpoint, job)

    async def wait(self, account: str, endpoint: str, job: str, seconds: float) -> JobView:
        return await self.views.wait(account, endpoint, job, seconds)

    async def poll_stream(self, account: str, endpoint: str, job: str, seconds: float) -> StreamPoll:
        return await self.views.poll_stream(account, endpoint, job, seconds)

    async def advance(self, job: str, cursor: Cursor) -> None:
        await self.views.advance(job, cursor)

    def follow(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        return self.views.follow(account, endpoint, job, after)

    async def logs(self, account: str, endpoint: str, job: str) -> tuple[AttemptLog, ...]:
        return await self.views.logs(account, endpoint, job)

    def follow_logs(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[LogEvent, None]:
        return self.views.follow_logs(account, endpoint, job, after)

    async def requests(self, account: str, endpoint: str, listing: Listing) -> Page:
        return await self.views.requests(account, endpoint, listing)

    async def health(self, account: str, endpoint: str) -> Health:
        return await self.views.health(account, endpoint)

    async def keep_file(
        self, account: str, endpoint: str, name: str, data: bytes, media_type: str
    ) -> GivenFile:
        target = self.endpoints.find(account, endpoint)
        return await self._given_files.keep(target.id, name, data, media_type)

    def running_workers(self, endpoint: str) -> int:
        """Workers of the endpoint of this id that are up, busy or not."""
        return sum(1 for worker in self.floor.of_endpoint(endpoint) if worker.state == "ready")

    async def find_caller(self, token: str) -> Caller | None:
        """Who holds this bearer key, and what it may do. Answers are remembered for five seconds."""
        return await self.callers.find(token)

    # -- nodes

    async def serve_node(self, stream: ControlStream, peer: str) -> None:
        """One session of one node; returns when it is over."""
        await self.nodes.serve(stream, peer)

    async def serve_logs(self, stream: ControlLogs, peer: str) -> None:
        """The lines that one node sends beside a session; returns when the stream is over."""
        await self.live_logs.serve(stream, peer)

    def _desire(self, node: str, desired: Desired) -> None:
        self.nodes.desire(node, desired)

    def _assign(self, claimed: Claimed) -> None:
        endpoint = self.endpoints.by_id(claimed.endpoint)
        prefix = names.attempt_prefix(claimed.endpoint, claimed.job, claimed.attempt)
        assign = Assign(
            job=claimed.job,
            attempt=claimed.attempt,
            worker=claimed.worker,
            input=claimed.input,
            input_ref=claimed.input_ref,
            execution_timeout_ms=claimed.execution_timeout_ms,
            ttl_s=max(claimed.expires_at - self._clock(), 0.0),
            grant=self._artifacts.grant(prefix),
            prices=self.staffing.runs(endpoint, claimed.worker).prices if endpoint else (),
            files_grant=self._own_grant(claimed.s3, prefix) if claimed.s3 else None,
            private_inputs=self._settings.allow_private_addresses,
        )
        self.nodes.assign(claimed.node, assign)
        self._bells.changed(claimed.job)  # whoever follows its logs has a node to ask now

    def _own_grant(self, own: S3Config, prefix: str) -> Grant:
        """The caller's own bucket. Its address is the caller's word: private ones are for the operator."""
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
        )
