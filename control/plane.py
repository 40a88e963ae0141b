"""The control plane: takes jobs in, gives them to nodes, takes results back, tells who waits.

HTTP (`control.api`), gRPC (`control.grpc_stream`) and the simulation all call this class and nothing below
it. It holds nothing that it cannot rebuild: the store is the truth, the floor is what the agents tell.

    submit ──> store ──> claim ──> Assign ──> agent ──> reports ──> store ──> bells ──> wait, stream, events
                 ^                                        │
                 └──────────── lost, refused ─────────────┘
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from random import Random

from stoker.control import store
from stoker.control.artifacts import Artifacts
from stoker.control.bells import Bells
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.endpoints import Endpoints
from stoker.control.errors import BadRequest, ControlError, InvalidInput, NotFound, Unavailable
from stoker.control.floor import Floor
from stoker.control.following import follow
from stoker.control.inputs import check_input, check_schema
from stoker.control.keys import find_key
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.sweeper import Sweeper
from stoker.control.types import (
    Claimed,
    Endpoint,
    Health,
    JobState,
    JobView,
    NewJob,
    S3Config,
    StreamEvent,
    StreamPoll,
    Submission,
)
from stoker.wire import names
from stoker.wire.messages import Assign, Desired, Grant
from stoker.wire.streams import ControlStream

log = logging.getLogger(__name__)

SPILL_BYTES = 1024 * 1024
"""A payload over this lies in the object store: a row that holds 1 MB costs 6 ms to change."""

INLINE_OUTPUT_BYTES = 20 * 1024 * 1024
"""A spilled output up to this size is put back into the record that the caller reads."""

KEY_CACHE_S = 5.0
KEYS_REMEMBERED = 10_000
KEY_LETTERS = 256

POLL_CHUNKS = 64
"""Chunks in one answer: each may have 1 MB."""


class Plane:
    """`run` must be running for jobs to move; everything else may be called from any task of its loop."""

    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        artifacts: Artifacts,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._artifacts = artifacts
        self._clock = clock
        self._rng = rng
        self._bells = Bells()
        self._keys: dict[bytes, tuple[float, str]] = {}
        self.floor = Floor()
        self.endpoints = Endpoints(settings.aliases)
        self.dispatch = Dispatch(self.floor, commits, self.endpoints.by_id, self._assign, clock)
        self.staffing = Staffing(self.floor, self.endpoints.all, self._desire, clock, rng)
        self.nodes = Nodes(settings, commits, self.floor, self.dispatch, self.staffing, self._bells, clock)
        self.sweeper = Sweeper(settings, commits, artifacts, self.staffing, self.dispatch, self.nodes, clock)

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Stores the endpoints that the configuration declares; to be awaited before `run`."""
        now = self._clock()
        for endpoint in endpoints:
            if endpoint.run.schema is not None:
                check_schema(endpoint.run.schema)

        def begin(conn: Conn) -> tuple[tuple[Endpoint, ...], tuple[str, ...]]:
            declared = {endpoint.id for endpoint in endpoints}
            for endpoint in store.list_endpoints(conn):
                if endpoint.id not in declared:
                    store.remove_endpoint(conn, endpoint.id, now)
            stored = tuple(store.put_endpoint(conn, endpoint, now) for endpoint in endpoints)
            return stored, store.take_over(conn, now - self._settings.silence_s)

        stored, expected = await self._commits.commit(begin)
        self.endpoints.load(stored)
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

    async def _claim_failed(self, error: Exception) -> None:
        log.error("a claim failed: %s", error)
        await asyncio.sleep(1.0)

    # -- what a caller does

    async def submit(self, account: str, endpoint: str, submission: Submission, *, sync: bool) -> JobView:
        """Stored and fsynced when it returns; claimed in the same transaction where a slot is free."""
        found = self.endpoints.find(account, endpoint)
        return await self._accept(found, await self._new_job(found, submission, sync=sync))

    async def run_sync(self, account: str, endpoint: str, submission: Submission, seconds: float) -> JobView:
        """Submits and waits: the terminal view, or the current one after `seconds`.

        The bell is hung up before the job is stored, so that the way back needs no read.
        """
        found = self.endpoints.find(account, endpoint)
        new = await self._new_job(found, submission, sync=True)
        with self._bells.end_of(new.id) as ended:
            accepted = await self._accept(found, new)
            try:
                async with asyncio.timeout(seconds):
                    view = await ended
            except TimeoutError:
                view = await self._view_or(accepted, account)
        try:
            return await self._whole(view)
        except Unavailable:
            return accepted  # with a 503 the caller would submit it again

    async def _view_or(self, accepted: JobView, account: str) -> JobView:
        """The view now; where the store does not answer, the one that the job was accepted with."""
        try:
            return await self._view(account, accepted.endpoint, accepted.id)
        except Unavailable:
            return accepted

    async def _accept(self, endpoint: Endpoint, new: NewJob) -> JobView:
        slots = self.dispatch.reserve([endpoint.id], limit=1)
        claimed: tuple[Claimed, ...] = ()
        try:
            view, claimed = await self._commits.commit(
                lambda conn: store.submit(conn, new, slots, new.created_at)
            )
        except Unavailable:
            if new.input_ref is not None:
                with suppress(ControlError):
                    await self._artifacts.delete(new.input_ref.key)
            raise
        finally:
            self.dispatch.settle(slots, claimed)
        if not any(job.job == new.id for job in claimed):
            self.dispatch.mark(endpoint.id)
            self.staffing.wake.set()
        return view

    async def _new_job(self, endpoint: Endpoint, submission: Submission, *, sync: bool) -> NewJob:
        now, job = self._clock(), names.job_id(self._rng, sync=sync)
        self._check_schema(endpoint, submission, job)
        data, ref = submission.input, None
        if len(data) > SPILL_BYTES:
            ref = await self._artifacts.put_bytes(names.input_key(endpoint.id, job), data)
        return NewJob(
            id=job,
            account=endpoint.account,
            endpoint=endpoint.id,
            created_at=now,
            expires_at=now + (submission.ttl_ms or endpoint.ttl_ms) / 1000,
            execution_timeout_ms=submission.execution_timeout_ms or endpoint.execution_timeout_ms,
            sync=sync,
            retention_s=self._settings.retention_sync_s if sync else self._settings.retention_s,
            max_attempts=endpoint.max_attempts,
            handler_retries=endpoint.handler_retries,
            low_priority=submission.low_priority,
            webhook=submission.webhook,
            input=None if ref else data,
            input_ref=ref,
            s3=submission.s3,
        )

    def _check_schema(self, endpoint: Endpoint, submission: Submission, job: str) -> None:
        if endpoint.run.schema is None:
            return
        try:
            check_input(endpoint.run.schema, json.loads(submission.input))
        except BadRequest as error:
            raise (InvalidInput(str(error), job) if endpoint.hosted else error) from None

    async def wait(self, account: str, endpoint: str, job: str, seconds: float) -> JobView:
        """The terminal view as soon as there is one; after `seconds`, the view as it is then."""
        with self._bells.end_of(job) as ended:
            view = await self._view(account, endpoint, job)
            if not view.ended:
                try:
                    async with asyncio.timeout(seconds):
                        view = await ended
                except TimeoutError:
                    view = await self._view(account, endpoint, job)
        return await self._whole(view)

    async def status(self, account: str, endpoint: str, job: str) -> JobView:
        return await self._whole(await self._view(account, endpoint, job))

    async def cancel(self, account: str, endpoint: str, job: str) -> JobView:
        """CANCELLED in the store at once; the slot is free when the agent says so."""
        found = self.endpoints.find(account, endpoint)
        now = self._clock()
        view, changed = await self._commits.commit(
            lambda conn: store.cancel(conn, found.account, found.id, job, now)
        )
        if view is None:
            raise _no_job(job)
        if changed is not None:
            self.nodes.apply([changed])
        return view

    async def health(self, account: str, endpoint: str) -> Health:
        found = self.endpoints.find(account, endpoint)
        counted, sample = await self._commits.read(
            lambda conn: (
                store.read_counters(conn, account, found.id),
                store.queue_sample(conn).get(found.id),
            )
        )
        workers = self.floor.of_endpoint(found.id)
        ready = [worker for worker in workers if worker.state == "ready"]
        return Health(
            completed=counted.get("completed", 0),
            failed=counted.get("failed", 0),
            retried=counted.get("retried", 0),
            in_queue=sample.queued + sample.low if sample else 0,
            in_progress=sample.in_progress if sample else 0,
            idle=sum(1 for worker in ready if worker.idle),
            ready=len(ready),
            running=sum(1 for worker in ready if worker.busy),
            initializing=sum(1 for worker in workers if worker.state == "starting"),
            throttled=self.staffing.throttled(found.id),
            unhealthy=sum(1 for worker in workers if worker.state == "unhealthy"),
        )

    async def find_key(self, token: str) -> str | None:
        """The account of a bearer key, or None. Answers are remembered for five seconds."""
        if len(token) > KEY_LETTERS:
            return None
        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        cached = self._keys.get(digest)
        if cached is not None and cached[0] > now:
            return cached[1]
        known = await self._commits.read(lambda conn: find_key(conn, token))
        if known is None:
            return None  # not remembered: strangers may send any number of them
        if len(self._keys) >= KEYS_REMEMBERED:
            self._keys.clear()
        self._keys[digest] = (now + KEY_CACHE_S, known[0])
        return known[0]

    # -- streams

    async def poll_stream(self, account: str, endpoint: str, job: str, seconds: float) -> StreamPoll:
        """Chunks not yet delivered to pollers; held up to `seconds` while there is nothing to say.

        A terminal state is told only together with the last chunk: until then the job reads IN_PROGRESS.
        """
        found = self.endpoints.find(account, endpoint)
        deadline = asyncio.get_running_loop().time() + seconds
        with self._bells.changes_of(job) as changed:
            while True:
                changed.clear()
                poll = await self._poll(found, job)
                if poll.chunks or poll.view.ended:
                    return poll
                try:
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                except TimeoutError:
                    return poll

    async def _poll(self, endpoint: Endpoint, job: str) -> StreamPoll:
        now = self._clock()

        def read(conn: Conn) -> StreamPoll | None:
            view = store.view(conn, endpoint.account, endpoint.id, job, now)
            if view is None:
                return None
            cursor = store.stream_cursor(conn, job)
            found = tuple(store.chunks(conn, job, cursor, POLL_CHUNKS + 1))
            chunks = found[:POLL_CHUNKS]
            if view.ended and len(found) > len(chunks):
                view = replace(view, state=JobState.IN_PROGRESS)
            last = (chunks[-1].attempt, chunks[-1].n) if chunks else cursor
            return StreamPoll(view, chunks, last)

        poll = await self._commits.read(read)
        if poll is None:
            raise _no_job(job)
        return poll

    async def advance(self, job: str, cursor: tuple[int, int]) -> None:
        """The answer with these chunks was written: pollers get what comes after."""
        await self._commits.commit(lambda conn: store.advance(conn, job, cursor))

    async def follow(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Every event of the job, from the start or after an id, to its end. A reader may come back."""
        found = self.endpoints.find(account, endpoint)
        with self._bells.changes_of(job) as changed:
            events = follow(self._commits, found, job, after, changed, self._clock)
            async with aclosing(events):
                async for event in events:
                    yield replace(event, view=await self._whole(event.view)) if event.view else event

    # -- nodes

    async def serve_node(self, stream: ControlStream, peer: str) -> None:
        """One session of one node; returns when it is over."""
        await self.nodes.serve(stream, peer)

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
            prices=endpoint.run.prices if endpoint else (),
            files_grant=self._own_grant(claimed.s3, prefix) if claimed.s3 else None,
        )
        self.nodes.assign(claimed.node, assign)

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

    # -- views

    async def _view(self, account: str, endpoint: str, job: str) -> JobView:
        found = self.endpoints.find(account, endpoint)
        now = self._clock()
        view = await self._commits.read(lambda conn: store.view(conn, found.account, found.id, job, now))
        if view is None:
            raise _no_job(job)
        if view.state is JobState.IN_QUEUE:
            return replace(view, reason=self.staffing.reason(found))
        return view

    async def _whole(self, view: JobView) -> JobView:
        """Puts a spilled output back, or names where it lies."""
        ref = view.output_ref
        if ref is None or ref.size > INLINE_OUTPUT_BYTES:
            return view
        return replace(view, output=await self._artifacts.get(ref), output_ref=None)


def _no_job(job: str) -> ControlError:
    return NotFound(f"no job {job!r} on this endpoint: the id is wrong, or its time has passed")
