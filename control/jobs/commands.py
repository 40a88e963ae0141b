"""Changes that callers make: jobs are taken in, tried again, cancelled, purged.

A submission is stored and fsynced when it is answered, and claimed in the same transaction where a slot is
free. With an idempotency key a second submission finds the job of the first.

    submission ──schema──> too large for a row? ──> object store
                               └──> one transaction: key known? job, input, claim ──> COMMIT ──> answer
                                                                                 └──> Assign

The Assign does not wait for the disk: it is sent once the claim is known, and taken back if COMMIT fails.
With an idempotency key it waits, since such a job may not run twice, and its caller submits it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace
from pydantic_core import to_json

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import (
    BadRequest,
    ControlError,
    InvalidInput,
    NotFound,
    PriorityRefused,
    TooMany,
    Unavailable,
    UncertainCommit,
)
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.queries import JobQueries, no_job
from stoker.control.jobs.waiters import JobChanges, JobWaiters
from stoker.control.large_json import LargeJson
from stoker.control.rules.access import NOBODY, Caller
from stoker.control.rules.inputs.checking import check_input
from stoker.control.rules.inputs.defaults import accepted
from stoker.control.rules.job_states import JobState
from stoker.control.rules.nodes.validation import SAVE_INLINE_MAX
from stoker.control.rules.queueing.deadlines import cannot_be_met, contradiction
from stoker.control.rules.queueing.expected import MOST_AHEAD, Pace, expected_run_s, expected_wait_s
from stoker.control.rules.queueing.order import place
from stoker.control.rules.quotas import UNBOUNDED, Quota, refused
from stoker.control.rules.submissions import Submission, job_id, refuse_unreachable
from stoker.control.rules.types import Changed, Claimed, Endpoint, JobView, NewJob, Slot, Submitted
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.control.store.jobs.idempotency import seen
from stoker.control.store.jobs.quota_uses import Kind, use
from stoker.wire.messages import Ref, Saved
from stoker.wire.object_keys import attempt_prefix, input_key, save_key

SPILL_BYTES = 1024 * 1024
"""A payload over this is stored as an object: a row that holds 1 MB costs 6 ms to change."""

STORED_WITHIN_S = 3_600.0
"""A spilled input that no job names after this time is deleted."""

PURGE_BATCH = 1_000
"""Jobs that one transaction cancels: others must get a turn at the store."""


Change: TypeAlias = Callable[[Conn, str, str, str, float], tuple[JobView | None, Changed | None]]
"""A change of a job in the store, by account, endpoint, job and time."""


class JobCommands:
    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        artifacts: Artifacts,
        waiters: JobWaiters,
        changes: JobChanges,
        queries: JobQueries,
        large_json: LargeJson,
    ) -> None:
        self._settings, self._commits, self._traces = context.settings, context.commits, context.traces
        self._clock, self._rng = context.clock, context.rng
        self._endpoints, self._scaling = scheduling.endpoints, scheduling.scaling
        self._dispatch, self._artifacts, self._waiters = scheduling.dispatch, artifacts, waiters
        self._changes, self._queries = changes, queries
        self._large_json = large_json
        self.closed = False

    # -- new jobs

    async def submit(
        self, endpoint: Endpoint, submission: Submission, *, sync: bool, caller: Caller = NOBODY
    ) -> JobView:
        """Takes in a job. Raises TooMany by the quota of the caller's key or of the endpoint."""
        if self.closed:
            raise _stopping()
        new = await self._new_job(endpoint, submission, caller, sync=sync)
        return (await self._accept(endpoint, new, caller)).view

    async def run_sync(
        self,
        endpoint: Endpoint,
        submission: Submission,
        seconds: float,
        *,
        must_end: bool = False,
        caller: Caller = NOBODY,
    ) -> JobView:
        """Submits and waits: the terminal view, or the current one after `seconds`. A job that must end by
        then is stopped and has timed out.

        The waiter is registered before the job is stored, so that the answer needs no read. The submission is
        released before the wait: hundreds of callers may wait, each with 20 MB.
        """
        if self.closed:
            raise _stopping()
        deadline = asyncio.get_running_loop().time() + seconds
        new = await self._new_job(endpoint, submission, caller, sync=True)
        with self._waiters.end_of(new.id) as ended:
            accepted = await self._accept(endpoint, new, caller)
            del submission, new
            view = accepted.view
            if not accepted.repeated:
                with suppress(TimeoutError, UncertainCommit):
                    async with asyncio.timeout_at(deadline):
                        view = await ended
        if view.state is JobState.COMPLETED and view.output_ref is None:
            return view
        try:
            if not view.ended:
                view = await self._wait_on(endpoint, view, deadline, repeated=accepted.repeated)
            if must_end and not view.ended and not self._waiters.closed:
                view = await self._end_wait(endpoint, view.id, seconds)
            return await self._queries.whole(view)
        except Unavailable:
            return view  # with a 503 the caller would submit it again

    async def _wait_on(
        self, endpoint: Endpoint, known: JobView, deadline: float, *, repeated: bool
    ) -> JobView:
        """Waits for a job that another call submitted, or after a commit whose outcome is unknown."""
        try:
            return await self._queries.wait_until(endpoint, known.id, deadline)
        except NotFound:
            if not repeated:
                raise
            raise NotFound(
                f"this Idempotency-Key was used for job {known.id}, whose time has passed; "
                "take a new key to run it once more"
            ) from None

    async def _end_wait(self, endpoint: Endpoint, job: str, seconds: float) -> JobView:
        why = (
            f"the job did not end within the {seconds:g} s for which /runsync waits, and was stopped; "
            "submit it to /run where it may take longer"
        )
        now = self._clock()
        view, changed = await self._commits.commit(
            lambda conn: store.end_wait(conn, endpoint.account, endpoint.id, job, now, why)
        )
        if view is None:
            raise no_job(job)
        if changed is not None:
            self._changes.apply([changed])
        return view

    async def _accept(self, endpoint: Endpoint, new: NewJob, caller: Caller) -> Submitted:
        timed = new.start_by is not None or new.deadline is not None
        pace = self._dispatch.pace(endpoint.id) if timed else None
        slots = self._dispatch.reserve([endpoint.id], most=1)
        done: Submitted | None = None
        sent: tuple[Claimed, ...] = ()

        def send(submitted: Submitted | ControlError) -> None:
            nonlocal sent
            if isinstance(submitted, ControlError):
                return
            if [job.job for job in submitted.claimed] == [new.id]:  # an older job would be claimed once more
                sent = submitted.claimed
                self._dispatch.settle(slots, sent)

        try:
            stored = await self._commits.commit(
                lambda conn: self._store(conn, endpoint, new, caller, slots, pace),
                send if new.once is None else None,
            )
            if isinstance(stored, ControlError):
                raise stored
            done = stored
        except UncertainCommit:
            raise  # every node sends Hello again, and must stop what is not stored
        except Exception:
            self._changes.take_back(sent)
            if new.input_ref is not None:
                with suppress(ControlError):  # it is noted, too, and goes in an hour
                    await self._artifacts.delete(new.input_ref.key)
            raise
        finally:
            if not sent:
                self._dispatch.settle(slots, done.claimed if done else ())
        if self._traces is not None and not done.repeated:
            self._traces.stored(new)
        if not any(job.job == new.id for job in done.claimed):
            self._dispatch.mark(endpoint.id)
            self._scaling.wake.set()
        return done

    def _store(
        self,
        conn: Conn,
        endpoint: Endpoint,
        new: NewJob,
        caller: Caller,
        slots: Sequence[Slot],
        pace: Pace | None,
    ) -> Submitted | ControlError:
        """Stores the job. A refusal is returned, as what raises costs the transactions beside it a second
        run."""
        if endpoint.id not in self._endpoints.by_id:  # deleted meanwhile: the job would not be cancelled
            raise NotFound(f"no endpoint {endpoint.id!r}: it was deleted")
        if new.metered and not seen(conn, new) and (refusal := _over_quota(conn, endpoint, caller, new)):
            return refusal
        if pace is not None and not seen(conn, new) and (late := _too_late(conn, new, pace)):
            return late
        submitted = store.submit(conn, new, () if self.closed else slots, new.created_at)
        if new.input_ref is not None and submitted.repeated:
            store.note_orphans(conn, [new.input_ref.key])
        elif new.input_ref is not None:
            store.forget_orphans(conn, [new.input_ref.key])
        if new.saved is not None and new.saved.ref is not None:
            store.forget_orphans(conn, [new.saved.ref.key])
        return submitted

    async def _new_job(
        self, endpoint: Endpoint, submission: Submission, caller: Caller, *, sync: bool
    ) -> NewJob:
        settings, priority = self._settings, caller.granted(submission.priority)
        if priority is None:
            raise _priority_refused(submission, caller)
        ttl_ms, start_by_ms = submission.ttl_ms or endpoint.ttl_ms, submission.start_by_ms
        if (start_by_ms or submission.deadline_ms) and (
            why := contradiction(start_by_ms, submission.deadline_ms, ttl_ms)
        ):
            raise BadRequest(why)
        if submission.webhook or submission.s3:
            refuse_unreachable(submission, allow_private=settings.allow_private_addresses)
        now, job = self._clock(), job_id(self._rng, sync=sync)
        data, ref = submission.input, None
        if endpoint.run.schema is not None:
            check = partial(self._checked, endpoint, endpoint.run.schema, data, job)
            data = await self._large_json.run("check an input", len(data), check)
        if len(data) > SPILL_BYTES:
            ref = await self._spill(input_key(endpoint.id, job), data, now)
        saved = submission.saved
        if saved is not None and len(saved.state) > SAVE_INLINE_MAX:
            key = save_key(attempt_prefix(endpoint.id, job, 1), 0)
            saved = Saved(saved.upto, ref=await self._spill(key, saved.state, now))
        return NewJob(
            id=job,
            account=endpoint.account,
            endpoint=endpoint.id,
            created_at=now,
            expires_at=now + ttl_ms / 1000,
            execution_timeout_ms=submission.execution_timeout_ms or endpoint.execution_timeout_ms,
            sync=sync,
            retention_s=settings.retention_sync_s if sync else settings.retention_s,
            max_attempts=endpoint.max_attempts,
            handler_retries=endpoint.handler_retries,
            priority=priority,
            start_by=None if submission.start_by_ms is None else now + submission.start_by_ms / 1000,
            deadline=None if submission.deadline_ms is None else now + submission.deadline_ms / 1000,
            webhook=submission.webhook,
            input=None if ref else data,
            input_ref=ref,
            s3=submission.s3,
            once=submission.once,
            api_key=caller.key,
            metered=caller.quota is not UNBOUNDED or endpoint.quota is not UNBOUNDED,
            traceparent=submission.traceparent,
            saved=saved,
        )

    async def _spill(self, key: str, data: bytes, now: float) -> Ref:
        """Stores a payload as an object, noted for deletion until the job is stored that names it: that job
        may never be stored."""
        await self._commits.commit(lambda conn: store.note_orphans(conn, [key], now + STORED_WITHIN_S))
        return await self._artifacts.put_bytes(key, data)

    def _checked(self, endpoint: Endpoint, schema: Mapping[str, Any], data: bytes, job: str) -> bytes:
        """Returns the input with the schema's defaults. The workers of a hosted model fill in their own: only
        they know which pipeline runs, and one of an older version may not take a newer field."""
        value = json.loads(data)
        if endpoint.hosted:
            try:
                check_input(schema, value)
            except BadRequest as error:
                raise InvalidInput(str(error), job) from None
            return data
        filled = accepted(schema, value)
        return data if filled == value else to_json(filled)

    # -- jobs that are there

    async def cancel(self, endpoint: Endpoint, job: str) -> JobView:
        """Cancels the job in the store at once; its slot is free when the agent reports the end."""
        view, changed = await self._change(store.cancel, endpoint, job)
        return view if changed else await self._queries.whole(view)

    async def delete(self, endpoint: Endpoint, job: str) -> None:
        """Deletes the job with its record and its files; if it has not ended, its work is stopped. Raises
        NotFound."""
        await self._change(store.delete, endpoint, job)

    async def retry(self, endpoint: Endpoint, job: str) -> JobView:
        """Puts the job back into the queue with the same id and input, within its old ttl."""
        if self.closed:
            raise _stopping()
        view, changed = await self._change(store.retry, endpoint, job)
        if not changed:
            raise BadRequest(f"only FAILED and TIMED_OUT jobs can be retried; job {job} is {view.state}")
        self._scaling.wake.set()
        return replace(view, reason=None)

    async def _change(self, change: Change, endpoint: Endpoint, job: str) -> tuple[JobView, bool]:
        """Makes a change of a job; returns the job, and whether that changed it. Raises NotFound."""
        now = self._clock()
        view, changed = await self._commits.commit(
            lambda conn: change(conn, endpoint.account, endpoint.id, job, now)
        )
        if view is None:
            raise no_job(job)
        if changed is not None:
            self._changes.apply([changed])
        return view, changed is not None

    async def purge(self, endpoint: Endpoint) -> int:
        """Cancels what waits now; jobs that come meanwhile stay."""
        upto = await self._commits.read(lambda conn: store.newest(conn, endpoint.id))
        removed = await self._purge_ahead(endpoint, upto)
        while True:
            cancel = partial(
                store.purge,
                account=endpoint.account,
                endpoint=endpoint.id,
                upto=upto,
                now=self._clock(),
                limit=PURGE_BATCH,
            )
            changed = await self._commits.commit(cancel)
            self._changes.apply(changed)
            removed += len(changed)
            if len(changed) < PURGE_BATCH:
                return removed

    async def _purge_ahead(self, endpoint: Endpoint, upto: int) -> int:
        if not (ahead := self._dispatch.waiting_ahead(endpoint.id)):
            return 0
        now = self._clock()
        changed = await self._commits.commit(
            lambda conn: store.purge_ahead(conn, endpoint.account, endpoint.id, upto, now, ahead)
        )
        self._changes.apply(changed)
        return len(changed)


def _over_quota(conn: Conn, endpoint: Endpoint, caller: Caller, new: NewJob) -> TooMany | None:
    """Returns why the quota of the key or of the endpoint refuses the job. Holds within the transaction that
    stores the job: so no two jobs pass where one may."""
    bounds: tuple[tuple[Kind, str, Quota], ...] = (
        ("key", caller.key, caller.quota),
        ("endpoint", endpoint.id, endpoint.quota),
    )
    now = new.created_at
    held = ((f"{kind} {owner}", quota, use(conn, kind, owner, quota, now)) for kind, owner, quota in bounds)
    return refused(held, now)


def _too_late(conn: Conn, new: NewJob, pace: Pace) -> BadRequest | None:
    """Returns why the job would miss its deadlines, as far as that is known."""
    now = new.created_at
    ahead = store.ahead_of_new(conn, new.endpoint, place(new.priority, now), now, MOST_AHEAD)
    start_by_s, deadline_s = (None if at is None else at - now for at in (new.start_by, new.deadline))
    why = cannot_be_met(start_by_s, deadline_s, expected_wait_s(ahead, pace), expected_run_s(pace))
    return None if why is None else BadRequest(why)


def _priority_refused(submission: Submission, caller: Caller) -> PriorityRefused:
    return PriorityRefused(
        f"policy.priority: this key may submit jobs of class {caller.priority} and below; got"
        f" {submission.priority}; `stoker key set --priority {submission.priority}` allows it"
    )


def _stopping() -> Unavailable:
    return Unavailable("the service is stopping and takes no more jobs; ask again")
