"""Reads of jobs: records, held waits, streams, lists, counts. Changes nothing but the pollers' cursor.

A payload that was spilled to the object store is put back into what the caller reads up to a size; above
that the caller gets `{"output_url", "size", "sha256"}`. A caller that waits for an end registers before
the store is read, so that it misses none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import ControlError, NotFound, Unavailable, UncertainCommit
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.following import follow
from stoker.control.jobs.live_logs import LiveLogs
from stoker.control.jobs.log_following import follow_logs
from stoker.control.jobs.waiters import JobWaiters
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import INLINE_BYTES
from stoker.control.rules.queueing.expected import MOST_AHEAD, expected_wait_s
from stoker.control.rules.streams import AttemptLog, Cursor, LogEvent, StoredChunk, StreamEvent, StreamPoll
from stoker.control.rules.types import Counted, Endpoint, EndpointHealth, JobView, Listing, Page
from stoker.control.scheduling.placed import waits_for
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.wire.messages import AttemptKey, Ref

POLL_CHUNKS = 64

LOG_TAIL_LINES = 20
"""Of what a failed attempt printed, in the job's record; `/logs` has more."""

COUNT_MOST = 10_000
"""Jobs that are counted one by one for `/health`; a longer queue is counted now and then."""

RECOUNT_S = 10.0
_ALL = 1 << 40


class JobQueries:
    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        artifacts: Artifacts,
        waiters: JobWaiters,
        live_logs: LiveLogs,
    ) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._endpoints, self._cluster = scheduling.endpoints, scheduling.cluster
        self._scaling, self._artifacts = scheduling.scaling, artifacts
        self._waiters, self._live_logs = waiters, live_logs
        self._counted: dict[str, tuple[float, Counted]] = {}
        self._counting = asyncio.Lock()
        self.closed = False

    # -- one job

    async def view(self, endpoint: Endpoint, job: str) -> JobView:
        """Returns the job as it is stored: a spilled output is only named. A waiting job has a reason."""
        now = self._clock()

        def read(conn: Conn) -> JobView | None:
            found = store.view(conn, endpoint.account, endpoint.id, job, now)
            if found is None or found.state is not JobState.IN_QUEUE:
                return found
            return replace(found, ahead=store.ahead_of(conn, endpoint.id, job, now, MOST_AHEAD))

        view = await self._commits.read(read)
        if view is None:
            raise no_job(job)
        return self._seen(endpoint, view)

    def _seen(self, endpoint: Endpoint, view: JobView) -> JobView:
        """Returns a job as its caller sees it: a job that only lies ahead of a worker is in the queue."""
        if view.state is JobState.IN_PROGRESS and self._cluster.lies_ahead(AttemptKey(view.id, view.attempt)):
            view = replace(view, state=JobState.IN_QUEUE, delay_ms=None, progress=None)
        return self._with_reason(endpoint, view)

    def _with_reason(self, endpoint: Endpoint, view: JobView) -> JobView:
        if view.state is not JobState.IN_QUEUE:
            return view
        if view.ahead is not None:
            now = self._clock()
            wait_s = expected_wait_s(view.ahead, self._cluster.pace(endpoint.id, now))
            view = replace(view, expected_start=None if wait_s is None else now + wait_s)
        if view.reason is not None:
            return view
        current = self._endpoints.by_id.get(
            endpoint.id, endpoint
        )  # it may have changed while a caller waited
        return replace(view, reason=self._scaling.reason(current))

    async def status(self, endpoint: Endpoint, job: str, ttl_ms: int | None = None) -> JobView:
        if ttl_ms is not None:
            await self._shorten(endpoint, job, ttl_ms / 1000)
        return await self.whole(await self.view(endpoint, job))

    async def _shorten(self, endpoint: Endpoint, job: str, seconds: float) -> None:
        now = self._clock()
        known = await self._commits.commit(
            lambda conn: store.shorten(conn, endpoint.account, endpoint.id, job, now + seconds, now)
        )
        if known is None:
            raise no_job(job)

    async def wait(self, endpoint: Endpoint, job: str, seconds: float) -> JobView:
        """Waits for the job's end. Returns the terminal view as soon as there is one; after `seconds`, the
        view as it is then."""
        self._check_open()
        deadline = asyncio.get_running_loop().time() + seconds
        return await self.whole(await self.wait_until(endpoint, job, deadline))

    async def wait_until(self, endpoint: Endpoint, job: str, deadline: float) -> JobView:
        """Waits as `wait` does, to a time of the loop's clock; a spilled output is only named.

        A commit whose outcome is unknown may have ended the job: the job is read again, and waited for on.
        """
        while True:
            with self._waiters.end_of(job) as ended:
                view = await self.view(endpoint, job)
                if view.ended or self._waiters.closed:
                    return view
                try:
                    async with asyncio.timeout_at(deadline):
                        return await ended
                except TimeoutError:
                    return await self.view(endpoint, job)
                except UncertainCommit:
                    continue

    async def logs(self, endpoint: Endpoint, job: str) -> tuple[AttemptLog, ...]:
        now = self._clock()
        logs = await self._commits.read(
            lambda conn: store.job_logs(conn, endpoint.account, endpoint.id, job, now)
        )
        if logs is None:
            raise no_job(job)
        return logs

    async def follow_logs(
        self, endpoint: Endpoint, job: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[LogEvent, None]:
        """Yields what the job prints, from what is kept or after an id, to its end. A reader may come
        back."""
        with self._waiters.changes_of(job) as changed:
            events = follow_logs(
                self._commits,
                self._live_logs,
                self._node_of,
                endpoint,
                job,
                after,
                changed,
                self._clock,
                self._stops,
            )
            async with aclosing(events):
                async for event in events:
                    yield event

    def _node_of(self, worker: str) -> str | None:
        placed = self._cluster.workers.get(worker)
        return placed.node if placed is not None and self._live_logs.has_stream(placed.node) else None

    # -- payloads

    async def whole(self, view: JobView) -> JobView:
        """Puts a spilled output back, or its URL; a failure comes with its last lines."""
        if view.state in (JobState.FAILED, JobState.TIMED_OUT):
            view = await self._with_lines(view)
        if view.output_ref is None:
            return view
        return replace(view, output=await self.payload(view.output_ref), output_ref=None)

    async def _with_lines(self, view: JobView) -> JobView:
        try:
            lines = await self._commits.read(lambda conn: store.last_lines(conn, view.id, LOG_TAIL_LINES))
        except Unavailable:
            return view  # the record matters more
        return replace(view, logs=lines)

    async def payload(self, ref: Ref) -> bytes:
        """Returns the JSON text that was spilled, or JSON with its URL, size and digest."""
        if ref.size <= INLINE_BYTES:
            return await self._artifacts.get(ref)
        location = {"output_url": await self._artifacts.url(ref), "size": ref.size, "sha256": ref.sha256}
        return json.dumps(location).encode()

    async def _whole_chunk(self, chunk: StoredChunk) -> StoredChunk:
        if chunk.ref is None:
            return chunk
        return replace(chunk, value=await self.payload(chunk.ref), ref=None)

    # -- streams

    async def poll_stream(self, endpoint: Endpoint, job: str, seconds: float) -> StreamPoll:
        """Returns the chunks not yet delivered to pollers; waits up to `seconds` while there is nothing to
        say.

        A terminal state is returned only together with the last chunk: until then the job reads IN_PROGRESS.
        """
        self._check_open()
        deadline, last = asyncio.get_running_loop().time() + seconds, False
        with self._waiters.changes_of(job) as changed:
            while True:
                changed.clear()
                poll = await self._poll(endpoint, job)
                if last or poll.chunks or poll.view.ended or self._waiters.closed:
                    chunks = [await self._whole_chunk(chunk) for chunk in poll.chunks]
                    return replace(poll, chunks=tuple(chunks))
                try:
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                except TimeoutError:
                    last = True  # no waiter is woken when a worker takes it

    async def _poll(self, endpoint: Endpoint, job: str) -> StreamPoll:
        now = self._clock()

        def read(conn: Conn) -> StreamPoll | None:
            view = store.view(conn, endpoint.account, endpoint.id, job, now)
            if view is None:
                return None
            cursor = store.stream_cursor(conn, job)
            found = store.chunks(conn, job, (cursor.attempt, cursor.n), POLL_CHUNKS + 1)
            chunks = found[: _fitting(found)]
            if view.ended and len(found) > len(chunks):
                view = replace(view, state=JobState.IN_PROGRESS)
            last = (chunks[-1].attempt, chunks[-1].n) if chunks else (cursor.attempt, cursor.n)
            return StreamPoll(view, chunks, Cursor(*last, end_reported=view.ended), cursor.end_reported)

        poll = await self._commits.read(read)
        if poll is None:
            raise no_job(job)
        return replace(poll, view=self._seen(endpoint, poll.view))

    async def advance(self, job: str, cursor: Cursor) -> None:
        """Moves the cursor after an answer was written: pollers get what comes after it."""
        await self._commits.commit(lambda conn: store.advance(conn, job, cursor))

    async def follow(
        self, endpoint: Endpoint, job: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yields every event of the job, from the start or after an id, to its end. A reader may come
        back."""
        with self._waiters.changes_of(job) as changed:
            events = follow(self._commits, endpoint, job, after, changed, self._clock, self._stops)
            async with aclosing(events):
                async for event in events:
                    yield await self._whole_event(event)

    def _check_open(self) -> None:
        """Raises Unavailable once the process ends: an answer at once would make pollers repeat their call at
        once."""
        if self.closed:
            raise Unavailable("the service is stopping; ask again")

    def _stops(self) -> bool:
        return self._waiters.closed

    async def _whole_event(self, event: StreamEvent) -> StreamEvent:
        if event.view is not None:
            return replace(event, view=await self.whole(event.view))
        if event.ref is not None:
            return replace(event, value=await self.payload(event.ref), ref=None)
        return event

    # -- an endpoint

    async def requests(self, endpoint: Endpoint, listing: Listing) -> Page:
        """Returns a page of the endpoint's jobs. The page may be short though others follow: of the jobs that
        the store has IN_PROGRESS, some only lie ahead of a worker."""
        now = self._clock()
        queued = listing.state is JobState.IN_QUEUE and self._cluster.waiting_ahead(endpoint.id)
        besides = JobState.IN_PROGRESS if queued else None
        page = await self._commits.read(
            lambda conn: store.list_jobs(conn, endpoint.account, endpoint.id, listing, now, besides=besides)
        )
        seen = [self._seen(endpoint, view) for view in page.views]
        return replace(page, views=tuple(view for view in seen if listing.state in (None, view.state)))

    async def cursor_of(self, endpoint: Endpoint, job: str) -> int:
        """Returns the cursor of the page of `requests` that follows this job. Raises NotFound."""
        now = self._clock()
        found = await self._commits.read(
            lambda conn: store.number_of(conn, endpoint.account, endpoint.id, job, now)
        )
        if found is None:
            raise no_job(job)
        return found

    async def health(self, endpoint: Endpoint) -> EndpointHealth:
        ends, jobs = await self._commits.read(
            lambda conn: (
                store.read_counters(conn, endpoint.account, endpoint.id),
                store.count_jobs(conn, endpoint.id, COUNT_MOST),
            )
        )
        if not jobs.exact:
            jobs = await self._recount(endpoint.id)
        ahead = min(len(self._cluster.waiting_ahead(endpoint.id)), jobs.in_progress)
        workers = self._cluster.of_endpoint(endpoint.id)
        ready = [worker for worker in workers if worker.state == "ready"]
        return EndpointHealth(
            completed=ends.get("completed", 0),
            failed=ends.get("failed", 0),
            retried=ends.get("retried", 0),
            in_queue=jobs.queued + ahead,
            in_progress=jobs.in_progress - ahead,
            idle=sum(1 for worker in ready if worker.idle),
            ready=len(ready),
            running=sum(1 for worker in ready if worker.jobs),
            initializing=sum(1 for worker in workers if worker.state == "starting"),
            throttled=self._scaling.throttled(endpoint.id),
            unhealthy=sum(1 for worker in workers if worker.state == "unhealthy"),
            unhealthy_devices=self._cluster.unhealthy(),
            reason=self._scaling.why_throttled(endpoint.id) or waits_for(workers),
            serves=tuple(sorted({worker.serves for worker in ready if worker.serves})),
        )

    async def queue_age(self, endpoint: Endpoint) -> float | None:
        """Returns for how many seconds the job waits that waits longest; None where none waits."""
        since = await self._commits.read(lambda conn: store.waiting_since(conn, endpoint.id))
        return None if since is None else max(self._clock() - since, 0.0)

    async def _recount(self, endpoint: str) -> Counted:
        """Returns the count of a long queue, which takes long: the queue is counted once for all who ask, and
        the count is good for a while."""
        async with self._counting:
            now = asyncio.get_running_loop().time()
            until, counted = self._counted.get(endpoint, (now, Counted()))
            if until <= now:
                counted = await self._commits.read(lambda conn: store.count_jobs(conn, endpoint, _ALL))
                self._counted[endpoint] = now + RECOUNT_S, counted
            return counted


def _fitting(chunks: Sequence[StoredChunk]) -> int:
    """Returns how many of the chunks make up one answer: at least one, and no more than the bounds allow."""
    size = 0
    for n, chunk in enumerate(chunks[:POLL_CHUNKS]):
        size += _size(chunk)
        if n and size > INLINE_BYTES:
            return n
    return min(len(chunks), POLL_CHUNKS)


def _size(chunk: StoredChunk) -> int:
    if chunk.ref is None:
        return len(chunk.value)
    return chunk.ref.size if chunk.ref.size <= INLINE_BYTES else 0


def no_job(job: str) -> ControlError:
    return NotFound(f"no job {job!r} on this endpoint: the id is wrong, or its time has passed")
