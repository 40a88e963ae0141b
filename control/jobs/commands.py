"""What callers change: jobs are taken in, tried again, cancelled, purged.

A submission is stored and fsynced when it is answered, and claimed in the same transaction where a slot is
free. With an idempotency key a second submission finds the job of the first.

    submission ──schema──> too large for a row? ──> object store
                               └──> one transaction: key known? job, input, claim ──> Assign
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

from stoker.control import store
from stoker.control.artifacts import Artifacts
from stoker.control.bells import Bells
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.endpoints import Endpoints
from stoker.control.errors import BadRequest, ControlError, InDoubt, InvalidInput, NotFound, Unavailable
from stoker.control.inputs import check_input
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.types import Endpoint, JobView, NewJob, Submission, Submitted
from stoker.control.views import Views, no_job
from stoker.wire import names
from stoker.wire.messages import Ref

SPILL_BYTES = 1024 * 1024
"""A payload over this lies in the object store: a row that holds 1 MB costs 6 ms to change."""

STORED_WITHIN_S = 3_600.0
"""A spilled input that no job names after so long is deleted."""

PURGE_BATCH = 1_000
"""Jobs that one transaction cancels: others must get a turn at the store."""


class Intake:
    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        artifacts: Artifacts,
        bells: Bells,
        endpoints: Endpoints,
        dispatch: Dispatch,
        staffing: Staffing,
        nodes: Nodes,
        views: Views,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._artifacts = artifacts
        self._bells = bells
        self._endpoints = endpoints
        self._dispatch = dispatch
        self._staffing = staffing
        self._nodes = nodes
        self._views = views
        self._clock = clock
        self._rng = rng
        self.closed = False

    # -- new jobs

    async def submit(self, account: str, endpoint: str, submission: Submission, *, sync: bool) -> JobView:
        self._check_open()
        found = self._endpoints.find(account, endpoint)
        return (await self._accept(found, await self._new_job(found, submission, sync=sync))).view

    async def run_sync(self, account: str, endpoint: str, submission: Submission, seconds: float) -> JobView:
        """Submits and waits: the terminal view, or the current one after `seconds`.

        The bell is hung up before the job is stored, so that the way back needs no read. What was submitted
        is let go before the wait: hundreds may wait, each with 20 MB.
        """
        self._check_open()
        found = self._endpoints.find(account, endpoint)
        new = await self._new_job(found, submission, sync=True)
        with self._bells.end_of(new.id) as ended:
            accepted = await self._accept(found, new)
            del submission, new
            if accepted.repeated:
                return await self._wait_again(account, accepted.view, seconds)
            try:
                async with asyncio.timeout(seconds):
                    view = await ended
            except (TimeoutError, InDoubt):
                view = await self._view_or(accepted.view, account)
        try:
            return await self._views.whole(view)
        except Unavailable:
            return accepted.view  # with a 503 the caller would submit it again

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("the service is stopping and takes no more jobs; ask again")

    async def _wait_again(self, account: str, first: JobView, seconds: float) -> JobView:
        try:
            return await self._views.wait(account, first.endpoint, first.id, seconds)
        except NotFound:
            raise NotFound(
                f"this Idempotency-Key was used for job {first.id}, whose time has passed; "
                "take a new key to run it once more"
            ) from None

    async def _view_or(self, accepted: JobView, account: str) -> JobView:
        """The view now; where the store does not answer, the one that the job was accepted with."""
        try:
            return await self._views.view(account, accepted.endpoint, accepted.id)
        except Unavailable:
            return accepted

    async def _accept(self, endpoint: Endpoint, new: NewJob) -> Submitted:
        slots = self._dispatch.reserve([endpoint.id], limit=1)
        done: Submitted | None = None

        def submit(conn: Conn) -> Submitted:
            if self._endpoints.by_id(endpoint.id) is None:  # deleted meanwhile: nobody would cancel the job
                raise NotFound(f"no endpoint {endpoint.id!r}: it was deleted")
            submitted = store.submit(conn, new, () if self.closed else slots, new.created_at)
            if new.input_ref is not None and submitted.repeated:
                store.note_leftovers(conn, [new.input_ref.key])
            elif new.input_ref is not None:
                store.forget_leftovers(conn, [new.input_ref.key])
            return submitted

        try:
            done = await self._commits.commit(submit)
        except ControlError as error:
            if new.input_ref is not None and not isinstance(error, InDoubt):
                with suppress(ControlError):  # it is noted, too, and goes in an hour
                    await self._artifacts.delete(new.input_ref.key)
            raise
        finally:
            self._dispatch.settle(slots, done.claimed if done else ())
        if not any(job.job == new.id for job in done.claimed):
            self._dispatch.mark(endpoint.id)
            self._staffing.wake.set()
        return done

    async def _new_job(self, endpoint: Endpoint, submission: Submission, *, sync: bool) -> NewJob:
        now, job = self._clock(), names.job_id(self._rng, sync=sync)
        self._check_schema(endpoint, submission, job)
        data, ref = submission.input, None
        if len(data) > SPILL_BYTES:
            ref = await self._spill(names.input_key(endpoint.id, job), data, now)
        settings = self._settings
        return NewJob(
            id=job,
            account=endpoint.account,
            endpoint=endpoint.id,
            created_at=now,
            expires_at=now + (submission.ttl_ms or endpoint.ttl_ms) / 1000,
            execution_timeout_ms=submission.execution_timeout_ms or endpoint.execution_timeout_ms,
            sync=sync,
            retention_s=settings.retention_sync_s if sync else settings.retention_s,
            max_attempts=endpoint.max_attempts,
            handler_retries=endpoint.handler_retries,
            low_priority=submission.low_priority,
            webhook=submission.webhook,
            input=None if ref else data,
            input_ref=ref,
            s3=submission.s3,
            once=submission.once,
        )

    async def _spill(self, key: str, data: bytes, now: float) -> Ref:
        """Noted for deletion until the job is stored that names it: it may never be."""
        await self._commits.commit(lambda conn: store.note_leftovers(conn, [key], now + STORED_WITHIN_S))
        return await self._artifacts.put_bytes(key, data)

    def _check_schema(self, endpoint: Endpoint, submission: Submission, job: str) -> None:
        if endpoint.run.schema is None:
            return
        try:
            check_input(endpoint.run.schema, json.loads(submission.input))
        except BadRequest as error:
            raise (InvalidInput(str(error), job) if endpoint.hosted else error) from None

    # -- jobs that are there

    async def cancel(self, account: str, endpoint: str, job: str) -> JobView:
        """CANCELLED in the store at once; the slot is free when the agent says so."""
        found = self._endpoints.find(account, endpoint)
        now = self._clock()
        view, changed = await self._commits.commit(
            lambda conn: store.cancel(conn, found.account, found.id, job, now)
        )
        if view is None:
            raise no_job(job)
        if changed is not None:
            self._nodes.apply([changed])
            return view
        return await self._views.whole(view)

    async def retry(self, account: str, endpoint: str, job: str) -> JobView:
        """Back to the queue with the same id and input, within its old ttl."""
        self._check_open()
        found = self._endpoints.find(account, endpoint)
        now = self._clock()
        view, changed = await self._commits.commit(
            lambda conn: store.retry(conn, found.account, found.id, job, now)
        )
        if view is None:
            raise no_job(job)
        if changed is None:
            raise BadRequest(f"only FAILED and TIMED_OUT jobs can be retried; job {job} is {view.state}")
        self._nodes.apply([changed])
        self._staffing.wake.set()
        return replace(view, reason=None)

    async def purge(self, account: str, endpoint: str) -> int:
        """Cancels what waits now; jobs that come meanwhile stay."""
        found = self._endpoints.find(account, endpoint)
        upto = await self._commits.read(lambda conn: store.newest(conn, found.id))
        removed = 0
        while True:
            cancel = partial(
                store.purge,
                account=found.account,
                endpoint=found.id,
                upto=upto,
                now=self._clock(),
                limit=PURGE_BATCH,
            )
            changed = await self._commits.commit(cancel)
            self._nodes.apply(changed)
            removed += len(changed)
            if len(changed) < PURGE_BATCH:
                return removed
