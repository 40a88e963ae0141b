"""Callers, as their programs go about it: they ask again when a connection breaks, and believe an answer.

Each may be answered with a result, a 404 once the job is over, a 503; anything else ends the story.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from stoker.control.errors import BadRequest, NotFound, Unavailable
from stoker.control.plane import Plane
from stoker.control.rules.access import Caller as KeyHolder
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.submissions import Once, S3Config, Submission
from stoker.control.rules.types import Endpoint, JobView, Listing
from tests.simulation.virtual_loop import current_process
from tests.simulation.wishes import ACCOUNT, Request
from tests.simulation.witness import Tale
from tests.simulation.world import Broken, World

T = TypeVar("T")
OWN = S3Config("id", "secret", "own", "https://own.test")
Ask = Callable[[Plane], Coroutine[Any, Any, T]]


def named(plane: Plane, endpoint: str) -> Endpoint:
    return plane.endpoints.find(ACCOUNT, endpoint)


OWNER = KeyHolder(ACCOUNT, priority=Priority.URGENT)


class Caller:
    """One program of one request."""

    def __init__(self, world: World, request: Request, rng: Random) -> None:
        self.world = world
        self.request = request
        self.rng = rng
        self.requested_at = 0.0

    async def pause(self, longest: float) -> None:
        await asyncio.sleep(self.rng.random() * longest)

    async def insist(self, ask: Ask[T], wait_s: float = 0.0) -> T:
        """Asks again until there is an answer: NotFound and BadRequest are answers."""
        while True:
            self.requested_at = self.world.loop.time()
            try:
                return await self.world.call(ask, wait_s)
            except Broken:
                await self.pause(0.5)
            except Unavailable as busy:
                await asyncio.sleep(busy.retry_after)

    # -- submitting

    async def submit(self) -> str | None:
        """The id of an accepted job; None when there is none, or its answer was lost for good."""
        request = self.request
        submission = Submission(
            input=request.body,
            webhook=request.webhook,
            execution_timeout_ms=int(request.timeout_s * 1000),
            ttl_ms=int(request.ttl_s * 1000),
            priority=_priority(request),
            once=_once(request),
            s3=OWN if request.own_bucket else None,
        )
        wait_s = self.rng.choice([2.0, 10.0, 30.0])
        name = request.endpoint

        def ask(plane: Plane) -> Coroutine[Any, Any, JobView]:
            if request.sync:
                return plane.commands.run_sync(
                    named(plane, name), submission, wait_s, must_end=request.must_end, caller=OWNER
                )
            return plane.commands.submit(named(plane, name), submission, sync=False, caller=OWNER)

        while True:
            began, plane = self.world.loop.time(), self.world.plane
            try:
                view = await self.world.call(ask, wait_s)
            except Broken:
                if request.key is None:
                    return None  # it may run or not: without a key nobody asks again
            except Unavailable as busy:
                await asyncio.sleep(busy.retry_after)
            except NotFound:
                return None  # its ttl passed while it was waited for
            else:
                request.answered += 1
                self.world.witness.caller_received(view.id, view)
                stored = self.world.smooth_since() <= began and plane and not plane._waiters.closed
                if request.sync and request.must_end and stored and not view.ended:
                    self.world.witness.fail(f"{view.id} had to end within {wait_s:g} s and is {view.state}")
                return view.id
            await self.pause(1.0)

    # -- looking

    async def wait(self, job: str) -> None:
        while not await self._look(
            job, lambda plane: plane.queries.wait(named(plane, self.request.endpoint), job, 15.0), 15.0
        ):
            pass

    async def status(self, job: str) -> None:
        while not await self._look(
            job, lambda plane: plane.queries.status(named(plane, self.request.endpoint), job)
        ):
            await self.pause(4.0)

    async def _look(self, job: str, ask: Ask[JobView], wait_s: float = 0.0) -> bool:
        """Whether it is over."""
        self.requested_at = self.world.loop.time()
        try:
            view = await self.insist(ask, wait_s)
        except NotFound:
            if wait_s:
                self.world.witness.answered(job, self.requested_at, self.world.smooth_since())
            self.world.witness.was_told_gone(job)
            return True
        self.world.witness.caller_received(job, view)
        if wait_s and view.ended:
            self.world.witness.answered(job, self.requested_at, self.world.smooth_since())
        return view.ended

    async def leave(self, job: str) -> None:
        """Nobody looks."""

    # -- changing

    async def cancel(self, job: str) -> None:
        await self.pause(self.rng.choice([0.1, 6.0]))
        self.request.cancelled = True
        name = self.request.endpoint
        over = await self._look(job, lambda plane: plane.commands.cancel(named(plane, name), job))
        if not over:
            self.world.witness.fail(f"{job} was cancelled and had not ended")

    async def shorten(self, job: str) -> None:
        await self.pause(4.0)
        self.request.shortened = True
        ttl_ms, name = self.rng.choice([1000, 8000]), self.request.endpoint
        await self._look(job, lambda plane: plane.queries.status(named(plane, name), job, ttl_ms))

    async def retry(self, job: str) -> None:
        """Asks for another go at what failed."""
        await self.wait(job)
        tale = self.world.witness.tales[job]
        tale.may_reopen += 1
        name = self.request.endpoint
        try:
            view = await self.insist(lambda plane: plane.commands.retry(named(plane, name), job))
        except NotFound:
            self.world.witness.was_told_gone(job)
        except BadRequest:
            if tale.state in ("FAILED", "TIMED_OUT"):
                self.world.witness.fail(f"{job} is {tale.state} and may not be tried again")
        else:
            if view.ended and view.attempt == 0:
                self.world.witness.fail(f"{job} was tried again and is {view.state}")
            await self.wait(job)

    async def logs(self, job: str) -> None:
        await self.pause(20.0)
        try:
            await self.insist(lambda plane: plane.queries.logs(named(plane, self.request.endpoint), job))
        except NotFound:
            self.world.witness.was_told_gone(job)

    # -- streams

    async def follow(self, job: str) -> None:
        """An SSE reader: comes late, breaks off, and comes back with the last id it has seen."""
        await self.pause(self.rng.choice([0.1, 8.0]))
        reader = Reader(self.world, self.world.witness.tales[job], self.request)
        while not reader.over:
            patience = self.rng.choice([0.5, 5.0, 1000.0])
            try:
                await self.world.call(lambda plane, p=patience: self._read(plane, job, reader, p), 3000.0)  # type: ignore[misc]
            except Broken:
                pass
            except Unavailable as busy:
                await asyncio.sleep(busy.retry_after)
            except NotFound:
                self.world.witness.was_told_gone(job)
                return
            await self.pause(1.0)

    async def _read(self, plane: Plane, job: str, reader: Reader, patience: float) -> None:
        """The server's side of one connection, and the reader at its other end."""
        events = plane.queries.follow(named(plane, self.request.endpoint), job, reader.last)
        process = current_process()
        try:
            async with asyncio.timeout(patience):
                async for event in events:
                    if process is None or not process.dead:
                        reader.reads(event)
        except TimeoutError:
            pass
        finally:
            await events.aclose()

    async def stream(self, job: str) -> None:
        """A poller of /stream: each chunk once, but for one whose answer may have been lost."""
        await self.pause(self.rng.choice([0.1, 8.0]))
        reader = Reader(self.world, self.world.witness.tales[job], self.request)
        name = self.request.endpoint

        async def poll(plane: Plane) -> bool:
            reported = await plane.queries.poll_stream(named(plane, name), job, 8.0)
            reader.polls(reported)
            await plane.queries.advance(job, reported.cursor)
            reader.uncertain = False
            return reported.view.ended

        while not reader.over:
            try:
                await self.world.call(poll, 8.0)
            except Broken:
                await self.pause(0.5)
            except Unavailable as busy:
                await asyncio.sleep(busy.retry_after)
            except NotFound:
                self.world.witness.was_told_gone(job)
                return


def _priority(request: Request) -> Priority | None:
    if request.low:
        return Priority.LOW
    return Priority.URGENT if request.urgent else None


def _once(request: Request) -> Once | None:
    if request.key is None:
        return None
    return Once(request.key, hashlib.sha256(bytes([request.sync]) + request.body).digest())


class Reader:
    """What one reader of a job's chunks has seen. Of one attempt it must be all, in order, each once."""

    def __init__(self, world: World, tale: Tale, request: Request) -> None:
        self.world = world
        self.tale = tale
        self.request = request
        self.last: tuple[int, int] | None = None
        self.attempt = 0
        self.seen = 0
        self.over = False
        self.uncertain = False
        """The last chunks were read, and control may not know it."""

    def fail(self, message: str) -> None:
        if self.tale.id not in self.world.witness.poisoned:
            self.world.witness.fail(f"a reader of {self.tale.id}: {message}")

    def reads(self, event: StreamEvent) -> None:
        match event.kind:
            case "reset":
                if event.attempt <= self.attempt:
                    self.fail(f"reset to attempt {event.attempt} after {self.attempt}")
                if self.tale.saved_in and event.attempt > self.tale.saved_in and not self.tale.may_reopen:
                    self.fail(f"reset to attempt {event.attempt}; attempt {self.tale.saved_in} had saved")
                self.attempt, self.seen = event.attempt, 0
            case "chunk":
                if self.attempt == 0:
                    self.attempt = event.attempt
                if event.attempt != self.attempt:
                    self.fail(
                        f"a chunk of attempt {event.attempt} after {self.attempt}, and no reset between"
                    )
                self._chunk(event.attempt, event.n, event.value)
            case "end":
                assert event.view is not None
                self.ends(event.view)
        if event.kind != "progress":
            self.last = (event.attempt, event.n)

    def polls(self, reported: Any) -> None:
        for chunk in reported.chunks:
            if chunk.attempt > self.attempt:
                self.attempt, self.seen = chunk.attempt, 0
            if chunk.attempt == self.attempt and chunk.n < self.seen and self.uncertain:
                continue
            self._chunk(chunk.attempt, chunk.n, chunk.value)
        self.uncertain = bool(reported.chunks)
        if reported.view.ended:
            self.ends(reported.view)

    def _chunk(self, attempt: int, n: int, value: bytes) -> None:
        self.tale.shown[attempt, n] = value
        if attempt != self.attempt or n != self.seen:
            self.fail(f"chunk {n} of attempt {attempt} after {self.seen} chunks of attempt {self.attempt}")
        self.seen = n + 1

    def ends(self, view: JobView) -> None:
        self.over = True
        self.world.witness.caller_received(self.tale.id, view)
        if view.state is not JobState.COMPLETED:
            return
        wanted = self.request.script(view.attempt).get("chunks", 0)
        seen = self.seen if self.attempt == view.stream else 0
        if seen != wanted:
            self.fail(f"it ended after {seen} of {wanted} chunks of attempt {view.attempt}")


async def look_around(world: World, rng: Random, names: list[str], done: asyncio.Event) -> None:
    """Somebody who watches the service: health and the list of jobs, again and again."""
    caller = Caller(world, None, rng)  # type: ignore[arg-type]
    while not done.is_set():
        await caller.pause(8.0)
        name = rng.choice(names)
        health = await caller.insist(lambda plane, n=name: plane.queries.health(named(plane, n)))  # type: ignore[misc]
        if min(health.in_queue, health.in_progress, health.idle, health.running) < 0:
            world.witness.fail(f"{name} has the health {health}")
        await caller.pause(4.0)
        await _list(world, caller, name)


async def _list(world: World, caller: Caller, name: str) -> None:
    """Newest first, each once, though jobs come and go while the pages are turned."""
    seen: set[str] = set()
    cursor: int | None = None
    for _ in range(20):
        request = Listing(limit=5, before=cursor)
        page = await caller.insist(lambda plane, a=request: plane.queries.requests(named(plane, name), a))  # type: ignore[misc]
        for view in page.views:
            if view.id in seen:
                world.witness.fail(f"{view.id} is listed twice")
            seen.add(view.id)
            world.witness.caller_received(view.id, view)
        cursor = page.cursor
        if cursor is None:
            return


async def purge(world: World, rng: Random, name: str, requests: list[Request]) -> None:
    """Cancels what waits; whoever had asked for it is told that it is cancelled."""
    caller = Caller(world, None, rng)  # type: ignore[arg-type]
    removed = await caller.insist(lambda plane: plane.commands.purge(named(plane, name)))
    for request in requests:  # those too that came while it was asked for again and again
        request.purged = request.purged or request.endpoint == name
    world.witness.note("purged {} jobs of {}", removed, name)
