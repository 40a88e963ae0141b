"""A plane in memory that answers the seam: jobs end when a test says so, and nothing runs by itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from random import Random

from stoker.control.access import ALL, Access, Caller
from stoker.control.errors import BadRequest, InvalidInput, KeyReused, NotFound
from stoker.control.inputs import check_input
from stoker.control.types import (
    AttemptLog,
    Cursor,
    Endpoint,
    EndpointVersion,
    GivenFile,
    Health,
    JobState,
    JobView,
    Listing,
    LogEvent,
    Once,
    Page,
    StoredChunk,
    StreamEvent,
    StreamPoll,
    Submission,
)
from stoker.wire import names

KEY = "sk-right"
ACCOUNT = "default"

IMAGE_SCHEMA = {
    "type": "object",
    "required": ["prompt"],
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": "string", "minLength": 1, "maxLength": 10_000},
        "negative_prompt": {"type": "string"},
        "width": {"type": "integer", "minimum": 256, "maximum": 1536, "multipleOf": 64},
        "height": {"type": "integer", "minimum": 256, "maximum": 1536, "multipleOf": 64},
        "num_inference_steps": {"type": "integer", "minimum": 1, "maximum": 50},
        "guidance": {"type": "number", "minimum": 0.0, "maximum": 10.0},
        "seed": {"type": "integer", "minimum": -1, "maximum": 2**63 - 1},
        "image_format": {"type": "string", "enum": ["png", "jpeg"]},
    },
}


def endpoint(name: str, *, hosted: bool = False, schema: dict[str, object] | None = None) -> Endpoint:
    return Endpoint(name, ACCOUNT, name, 1, EndpointVersion("handler", schema=schema), hosted=hosted)


@dataclass
class FakeBook:
    by_id: dict[str, Endpoint]

    def find(self, account: str, endpoint: str) -> Endpoint:
        if account != ACCOUNT or endpoint not in self.by_id:
            raise NotFound(f"no endpoint {endpoint!r}")
        return self.by_id[endpoint]


def own_endpoints() -> dict[str, Endpoint]:
    return {
        "echo": endpoint("echo"),
        "other-echo": endpoint("echo"),  # an alias
        "text-to-image": endpoint("text-to-image", hosted=True, schema=IMAGE_SCHEMA),
        "sized": endpoint("sized", schema=IMAGE_SCHEMA),
    }


@dataclass
class FakePlane:
    """`waits`, `held` and `submitted` tell what was asked; `raises` is raised by the next call."""

    endpoints: FakeBook = field(default_factory=lambda: FakeBook(own_endpoints()))
    access: dict[str, Access] = field(default_factory=dict)  # of further keys
    jobs: dict[str, JobView] = field(default_factory=dict)
    keys: dict[str, tuple[Once, str]] = field(default_factory=dict)
    chunks: dict[str, list[StoredChunk]] = field(default_factory=dict)
    written: dict[str, tuple[AttemptLog, ...]] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    advanced: list[Cursor] = field(default_factory=list)
    submitted: list[Submission] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    ttls: list[int | None] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    follows: list[tuple[int, int] | None] = field(default_factory=list)
    events: asyncio.Queue[StreamEvent] = field(default_factory=asyncio.Queue)
    log_events: asyncio.Queue[LogEvent] = field(default_factory=asyncio.Queue)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    counted: Health = field(default_factory=Health)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    follow_closed: asyncio.Event = field(default_factory=asyncio.Event)
    raises: Exception | None = None
    ends_at_once: JobView | None = None
    workers: int = 0
    patience: float = float("inf")  # nobody is held for longer
    rng: Random = field(default_factory=lambda: Random(1))

    def add(self, **fields: object) -> JobView:
        """A stored job; `id` is drawn where it is not given."""
        known = {"endpoint": "echo", "state": JobState.IN_QUEUE, "created_at": 0.0}
        drawn = {"id": names.job_id(self.rng, sync=False)}
        view = JobView(**(drawn | known | fields))  # type: ignore[arg-type]
        self.jobs[view.id] = view
        return view

    async def change(self, job: str, **fields: object) -> JobView:
        async with self.changed:
            self.jobs[job] = replace(self.jobs[job], **fields)  # type: ignore[arg-type]
            self.changed.notify_all()
        return self.jobs[job]

    async def emit(self, job: str, *chunks: StoredChunk) -> None:
        async with self.changed:
            self.chunks.setdefault(job, []).extend(chunks)
            self.changed.notify_all()

    # -- the seam

    async def find_caller(self, token: str) -> Caller | None:
        self._may_raise()
        access = ALL if token == KEY else self.access.get(token)
        return None if access is None else Caller(ACCOUNT, "k1", access)

    async def submit(self, account: str, endpoint: str, submission: Submission, *, sync: bool) -> JobView:
        found = self.endpoints.find(account, endpoint)
        job = names.job_id(self.rng, sync=sync)
        if found.run.schema is not None:
            try:
                check_input(found.run.schema, json.loads(submission.input))
            except BadRequest as error:
                raise (InvalidInput(str(error), job) if found.hosted else error) from None
        if submission.once is not None:
            first = self._first_use(submission.once, job)
            if first != job:
                return self.jobs[first]
        self.submitted.append(submission)
        view = self.add(id=job, endpoint=found.id, sync=sync, webhook=submission.webhook)
        if self.ends_at_once is not None:
            view = self.jobs[job] = replace(self.ends_at_once, id=job, endpoint=found.id)
        return view

    def _first_use(self, once: Once, job: str) -> str:
        known, first = self.keys.setdefault(once.key, (once, job))
        if known != once:
            raise KeyReused(f"Idempotency-Key {once.key} came with another request before")
        return first

    async def run_sync(self, account: str, endpoint: str, submission: Submission, seconds: float) -> JobView:
        view = await self.submit(account, endpoint, submission, sync=True)
        return await self.wait(account, endpoint, view.id, seconds)

    async def view(self, account: str, endpoint: str, job: str) -> JobView:
        self._may_raise()
        return self._find(account, endpoint, job)

    async def wait(self, account: str, endpoint: str, job: str, seconds: float) -> JobView:
        self._hold(seconds)
        view = self._find(account, endpoint, job)
        async with self.changed:
            try:
                async with asyncio.timeout(min(seconds, self.patience)):
                    await self.changed.wait_for(lambda: self.jobs[job].ended)
            except TimeoutError:
                return view
        return self.jobs[job]

    async def status(self, account: str, endpoint: str, job: str, ttl_ms: int | None = None) -> JobView:
        self.ttls.append(ttl_ms)
        return self._find(account, endpoint, job)

    async def cancel(self, account: str, endpoint: str, job: str) -> JobView:
        view = self._find(account, endpoint, job)
        return view if view.ended else await self.change(job, state=JobState.CANCELLED)

    async def retry(self, account: str, endpoint: str, job: str) -> JobView:
        view = self._find(account, endpoint, job)
        if view.state not in (JobState.FAILED, JobState.TIMED_OUT):
            raise BadRequest(f"only FAILED and TIMED_OUT jobs can be retried; job {job} is {view.state}")
        return await self.change(job, state=JobState.IN_QUEUE, output=None, error=None)

    async def purge(self, account: str, endpoint: str) -> int:
        found = self.endpoints.find(account, endpoint)
        queued = [
            view.id
            for view in self.jobs.values()
            if view.endpoint == found.id and view.state is JobState.IN_QUEUE
        ]
        for job in queued:
            await self.change(job, state=JobState.CANCELLED, reason="purged")
        return len(queued)

    async def requests(self, account: str, endpoint: str, listing: Listing) -> Page:
        """The cursor counts from the oldest job."""
        found = self.endpoints.find(account, endpoint)
        self.listings.append(listing)
        every = [(n, view) for n, view in enumerate(self.jobs.values(), 1) if view.endpoint == found.id]
        rows = [
            (n, view)
            for n, view in reversed(every)
            if (listing.before is None or n < listing.before)
            and (listing.state is None or view.state is listing.state)
            and (listing.since is None or view.created_at >= listing.since)
        ]
        taken = rows[: listing.limit]
        return Page(tuple(view for _, view in taken), taken[-1][0] if len(rows) > len(taken) else None)

    async def logs(self, account: str, endpoint: str, job: str) -> tuple[AttemptLog, ...]:
        return self.written.get(self._find(account, endpoint, job).id, ())

    def running_workers(self, endpoint: str) -> int:
        return self.workers

    async def poll_stream(self, account: str, endpoint: str, job: str, seconds: float) -> StreamPoll:
        self._hold(seconds)
        self._find(account, endpoint, job)
        async with self.changed:
            try:
                async with asyncio.timeout(min(seconds, self.patience)):
                    await self.changed.wait_for(lambda: self._fresh(job) or self.jobs[job].ended)
            except TimeoutError:
                pass
        fresh, view, before = self._fresh(job), self.jobs[job], self.cursors.get(job, Cursor())
        last = (fresh[-1].attempt, fresh[-1].n) if fresh else (before.attempt, before.n)
        return StreamPoll(view, fresh, Cursor(*last, told=view.ended), before.told)

    async def advance(self, job: str, cursor: Cursor) -> None:
        self._may_raise()
        self.cursors[job] = cursor
        self.advanced.append(cursor)

    async def follow(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[StreamEvent]:
        self.follows.append(after)
        try:
            while True:
                event = await self.events.get()
                yield event
                if event.kind == "end":
                    return
        finally:
            self.follow_closed.set()

    async def keep_file(
        self, account: str, endpoint: str, name: str, data: bytes, media_type: str
    ) -> GivenFile:
        found = self.endpoints.find(account, endpoint)
        digest = hashlib.sha256(data).hexdigest()
        return GivenFile(f"https://objects.test/{found.id}/{name}", len(data), digest, 86_400.0)

    async def follow_logs(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[LogEvent]:
        self.follows.append(after)
        view = self._find(account, endpoint, job)
        if view.ended:
            yield LogEvent("end", view.attempt, view=view)
            return
        while True:
            try:
                async with asyncio.timeout(self.patience):
                    event = await self.log_events.get()
            except TimeoutError:
                return
            yield event
            if event.kind == "end":
                return

    async def health(self, account: str, endpoint: str) -> Health:
        self.endpoints.find(account, endpoint)
        return self.counted

    def _find(self, account: str, endpoint: str, job: str) -> JobView:
        found = self.endpoints.find(account, endpoint)
        view = self.jobs.get(job)
        if view is None or view.endpoint != found.id:
            raise NotFound(f"no job {job!r}")
        return view

    def _fresh(self, job: str) -> tuple[StoredChunk, ...]:
        after = self.cursors.get(job, Cursor())
        return tuple(
            chunk for chunk in self.chunks.get(job, ()) if (chunk.attempt, chunk.n) > (after.attempt, after.n)
        )

    def _hold(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.held.set()

    def _may_raise(self) -> None:
        if self.raises is not None:
            error, self.raises = self.raises, None
            raise error
