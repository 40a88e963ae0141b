"""A plane in memory with the parts that HTTP calls: jobs end when a test says so, nothing runs by itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import BinaryIO

from msgspec.structs import replace
from pydantic_core import to_json

from stoker.control.config.endpoints import Endpoints
from stoker.control.errors import BadRequest, InvalidInput, KeyReused, NotFound, Unauthorized
from stoker.control.jobs.replay_rules import Wish
from stoker.control.large_json import LargeJson
from stoker.control.rules.access import ALL, NOBODY, Access, Caller
from stoker.control.rules.attempts import JobAttempts
from stoker.control.rules.inputs.defaults import accepted
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import AttemptLog, Cursor, LogEvent, StoredChunk, StreamEvent, StreamPoll
from stoker.control.rules.submissions import Once, Submission, job_id
from stoker.control.rules.types import (
    Endpoint,
    EndpointHealth,
    EndpointVersion,
    JobView,
    Listing,
    Page,
    UploadedFile,
)
from stoker.control.traces.traces import Traces
from stoker.testing.memory_artifacts import MemoryArtifacts

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


def own_endpoints() -> Endpoints:
    endpoints = Endpoints({"other-echo": "echo"})
    endpoints.load(
        [
            endpoint("echo"),
            endpoint("text-to-image", hosted=True, schema=IMAGE_SCHEMA),
            endpoint("sized", schema=IMAGE_SCHEMA),
        ]
    )
    return endpoints


@dataclass
class FakePlane:
    """`waits`, `held`, `kept` and `submitted` tell what was asked; `raises` is raised by the next call."""

    endpoints: Endpoints = field(default_factory=own_endpoints)
    access: dict[str, Access] = field(default_factory=dict)  # of further keys
    jobs: dict[str, JobView] = field(default_factory=dict)
    keys: dict[str, tuple[Once, str]] = field(default_factory=dict)
    chunks: dict[str, list[StoredChunk]] = field(default_factory=dict)
    written: dict[str, tuple[AttemptLog, ...]] = field(default_factory=dict)
    tried: dict[str, JobAttempts] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    advanced: list[Cursor] = field(default_factory=list)
    submitted: list[Submission] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
    kept: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    ttls: list[int | None] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    follows: list[tuple[int, int] | None] = field(default_factory=list)
    events: asyncio.Queue[StreamEvent] = field(default_factory=asyncio.Queue)
    log_events: asyncio.Queue[LogEvent] = field(default_factory=asyncio.Queue)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    large_json: LargeJson = field(default_factory=LargeJson)
    counted: EndpointHealth = field(default_factory=EndpointHealth)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    follow_closed: asyncio.Event = field(default_factory=asyncio.Event)
    raises: Exception | None = None
    ends_at_once: JobView | None = None
    workers: int = 0
    patience: float = float("inf")  # nobody is held for longer
    rng: Random = field(default_factory=lambda: Random(1))
    artifacts: MemoryArtifacts = field(default_factory=MemoryArtifacts)
    traces: Traces | None = None

    def add(self, **fields: object) -> JobView:
        """A stored job; `id` is drawn where it is not given."""
        known = {"endpoint": "echo", "state": JobState.IN_QUEUE, "created_at": 0.0}
        drawn = {"id": job_id(self.rng, sync=False)}
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

    # -- what HTTP calls

    @property
    def commands(self) -> FakePlane:
        return self

    queries = details = callers = uploaded_files = cluster = replays = commands

    async def find(self, authorization: str | None) -> Caller:
        self._may_raise()
        token = re.sub("(?i)^bearer( |$)", "", (authorization or "").strip()).strip()
        if not token:
            raise Unauthorized("no token provided")
        access = ALL if token == KEY else self.access.get(token)
        if access is None:
            raise Unauthorized("invalid api key")
        return Caller(ACCOUNT, "k1" if token == KEY else token, access)

    async def submit(
        self, endpoint: Endpoint, submission: Submission, *, sync: bool, caller: Caller = NOBODY
    ) -> JobView:
        job = job_id(self.rng, sync=sync)
        if endpoint.run.schema is not None:
            try:
                value = json.loads(submission.input)
                filled = accepted(endpoint.run.schema, value)
            except BadRequest as error:
                raise (InvalidInput(str(error), job) if endpoint.hosted else error) from None
            if not endpoint.hosted and filled != value:
                submission = replace(submission, input=to_json(filled))
        if submission.once is not None:
            first = self._first_use(submission.once, job)
            if first != job:
                return self.jobs[first]
        self.submitted.append(submission)
        view = self.add(id=job, endpoint=endpoint.id, sync=sync, webhook=submission.webhook)
        if self.ends_at_once is not None:
            view = self.jobs[job] = replace(self.ends_at_once, id=job, endpoint=endpoint.id)
        return view

    def _first_use(self, once: Once, job: str) -> str:
        known, first = self.keys.setdefault(once.key, (once, job))
        if known != once:
            raise KeyReused(f"Idempotency-Key {once.key} came with another request before")
        return first

    async def run_sync(
        self,
        endpoint: Endpoint,
        submission: Submission,
        seconds: float,
        *,
        must_end: bool = False,
        caller: Caller = NOBODY,
    ) -> JobView:
        view = await self.submit(endpoint, submission, sync=True)
        view = await self.wait(endpoint, view.id, seconds)
        if must_end and not view.ended:
            return await self.change(view.id, state=JobState.TIMED_OUT, error="stopped")
        return view

    async def view(self, endpoint: Endpoint, job: str) -> JobView:
        self._may_raise()
        return self._find(endpoint, job)

    async def wait(self, endpoint: Endpoint, job: str, seconds: float) -> JobView:
        self._hold(seconds)
        view = self._find(endpoint, job)
        async with self.changed:
            try:
                async with asyncio.timeout(min(seconds, self.patience)):
                    await self.changed.wait_for(lambda: self.jobs[job].ended)
            except TimeoutError:
                return view
        return self.jobs[job]

    async def status(self, endpoint: Endpoint, job: str, ttl_ms: int | None = None) -> JobView:
        self.ttls.append(ttl_ms)
        return self._find(endpoint, job)

    async def cancel(self, endpoint: Endpoint, job: str) -> JobView:
        view = self._find(endpoint, job)
        return view if view.ended else await self.change(job, state=JobState.CANCELLED)

    async def delete(self, endpoint: Endpoint, job: str) -> None:
        del self.jobs[self._find(endpoint, job).id]

    async def cursor_of(self, endpoint: Endpoint, job: str) -> int:
        return list(self.jobs).index(self._find(endpoint, job).id) + 1

    async def retry(self, endpoint: Endpoint, job: str) -> JobView:
        view = self._find(endpoint, job)
        if view.state not in (JobState.FAILED, JobState.TIMED_OUT):
            raise BadRequest(f"only FAILED and TIMED_OUT jobs can be retried; job {job} is {view.state}")
        return await self.change(job, state=JobState.IN_QUEUE, output=None, error=None)

    async def purge(self, endpoint: Endpoint) -> int:
        queued = [
            view.id
            for view in self.jobs.values()
            if view.endpoint == endpoint.id and view.state is JobState.IN_QUEUE
        ]
        for job in queued:
            await self.change(job, state=JobState.CANCELLED, reason="purged")
        return len(queued)

    async def requests(self, endpoint: Endpoint, listing: Listing) -> Page:
        """The cursor counts from the oldest job."""
        self.listings.append(listing)
        every = [(n, view) for n, view in enumerate(self.jobs.values(), 1) if view.endpoint == endpoint.id]
        rows = [
            (n, view)
            for n, view in reversed(every)
            if (listing.before is None or n < listing.before)
            and (listing.state is None or view.state is listing.state)
            and (listing.since is None or view.created_at >= listing.since)
        ]
        taken = rows[: listing.limit]
        return Page(tuple(view for _, view in taken), taken[-1][0] if len(rows) > len(taken) else None)

    async def logs(self, endpoint: Endpoint, job: str) -> tuple[AttemptLog, ...]:
        return self.written.get(self._find(endpoint, job).id, ())

    async def attempts(self, endpoint: Endpoint, job: str) -> JobAttempts:
        view = self._find(endpoint, job)
        return self.tried.get(view.id, JobAttempts(view.created_at, None, ()))

    async def input(self, endpoint: Endpoint, job: str, caller: Caller) -> bytes:
        return b'{"of": "%s"}' % self._find(endpoint, job).id.encode()

    async def case(self, endpoint: Endpoint, job: str) -> bytes:
        view = self._find(endpoint, job)
        return json.dumps(
            {
                "case": 1,
                "id": view.id,
                "endpoint": view.endpoint,
                "attempt": 1,
                "status": "FAILED",
                "createdAt": 0,
                "executionTimeoutMs": 600_000,
                "worker": "w1",
                "node": {"name": "n1"},
            }
        ).encode()

    async def start(self, endpoint: Endpoint, job: str, wish: Wish) -> JobView:
        self._find(endpoint, job)
        self.wishes.append(wish)
        return self.add(endpoint="a-replay")

    def ready_workers(self, endpoint: str) -> int:
        return self.workers

    async def poll_stream(self, endpoint: Endpoint, job: str, seconds: float) -> StreamPoll:
        self._hold(seconds)
        self._find(endpoint, job)
        async with self.changed:
            try:
                async with asyncio.timeout(min(seconds, self.patience)):
                    await self.changed.wait_for(lambda: self._fresh(job) or self.jobs[job].ended)
            except TimeoutError:
                pass
        fresh, view, before = self._fresh(job), self.jobs[job], self.cursors.get(job, Cursor())
        last = (fresh[-1].attempt, fresh[-1].n) if fresh else (before.attempt, before.n)
        return StreamPoll(view, fresh, Cursor(*last, end_reported=view.ended), before.end_reported)

    async def advance(self, job: str, cursor: Cursor) -> None:
        self._may_raise()
        self.cursors[job] = cursor
        self.advanced.append(cursor)

    async def follow(
        self, endpoint: Endpoint, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[StreamEvent]:
        async with self.changed:
            self.follows.append(after)
            self.changed.notify_all()
        try:
            while True:
                event = await self.events.get()
                if event.kind == "stop":  # the service stops: no end is sent
                    return
                yield event
                if event.kind == "end":
                    return
        finally:
            self.follow_closed.set()

    async def followed(self, count: int) -> None:
        """Until so many jobs were followed."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.follows) >= count)

    async def keep(
        self, endpoint: Endpoint, caller: Caller, name: str, file: BinaryIO, media_type: str
    ) -> UploadedFile:
        file.seek(0)
        data = file.read()
        self.kept[name] = (data, media_type)
        digest = hashlib.sha256(data).hexdigest()
        return UploadedFile(f"https://objects.test/{endpoint.id}/{name}", len(data), digest, 86_400.0)

    async def follow_logs(
        self, endpoint: Endpoint, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[LogEvent]:
        self.follows.append(after)
        view = self._find(endpoint, job)
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

    async def health(self, endpoint: Endpoint) -> EndpointHealth:
        return self.counted

    def _find(self, endpoint: Endpoint, job: str) -> JobView:
        view = self.jobs.get(job)
        if view is None or view.endpoint != endpoint.id:
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
