"""Operations of an endpoint: a call in, an answer out. One table names them all.

Nothing here depends on how a request arrives (`router`) or how a job is stored. A caller that leaves during
`/runsync` leaves its job running.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TypeAlias

import orjson

from stoker.control.errors import BadRequest, ControlError, InvalidInput
from stoker.control.http.calls import openai
from stoker.control.http.calls.answers import Answer, error_answer
from stoker.control.http.calls.calls import IGNORED_BODY_BYTES, BodyReader, Call, may_not
from stoker.control.http.calls.event_stream import EventAnswer, parse_event_id, render, render_log
from stoker.control.http.calls.forms import declared_media_type
from stoker.control.http.calls.openai import OpenAIOperation
from stoker.control.http.calls.query_parameters import flag, once_of, parse_listing
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.calls.turns import AnswerInTurn, Turns
from stoker.control.jobs import records
from stoker.control.jobs.records import Record
from stoker.control.plane import Plane
from stoker.control.rules.streams import LogEvent, StreamEvent
from stoker.control.rules.submissions import Submission, parse_submission
from stoker.control.rules.types import LOAD_BALANCER
from stoker.wire import names

Response: TypeAlias = (
    Answer | AnswerInTurn | EventAnswer[StreamEvent] | EventAnswer[LogEvent] | EventAnswer[bytes]
)
Handler: TypeAlias = Callable[[Call], Awaitable[Record | Response]]
"""A record is answered as JSON."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`takes_path`: what follows its name is a path. `of_queue`: only queue endpoints have it. `held`: its
    answer may take long, and is not given to a key that has ended meanwhile."""

    methods: tuple[str, ...]
    takes_job: bool
    handle: Handler
    writes: bool = False
    takes_path: bool = False
    of_queue: bool = True
    held: bool = False
    refuse: Callable[[ControlError], Answer] = error_answer


class Operations:
    def __init__(self, plane: Plane, settings: ApiSettings) -> None:
        self._plane = plane
        self._settings = settings
        self._turns = Turns()
        self._reader = BodyReader()
        self.table: dict[str, Operation] = {
            "run": Operation(("POST",), False, self.run, writes=True),
            "runsync": Operation(("POST",), False, self.runsync, writes=True),
            "status": Operation(("GET", "POST"), True, self.status),
            "status-sync": Operation(("GET", "POST"), True, self.status_sync, held=True),
            "stream": Operation(("GET", "POST"), True, self.stream, held=True),
            "cancel": Operation(("POST",), True, self.cancel, writes=True),
            "retry": Operation(("POST",), True, self.retry, writes=True),
            "purge-queue": Operation(("POST",), False, self.purge_queue, writes=True),
            "requests": Operation(("GET",), False, self.requests),
            "logs": Operation(("GET",), True, self.logs),
            "files": Operation(("POST",), False, self.files, writes=True),
            "health": Operation(("GET",), False, self.health, of_queue=False),
            "openai": Operation(
                ("GET", "POST"),
                True,
                OpenAIOperation(plane, settings, self._reader).handle,
                writes=True,
                takes_path=True,
                held=True,
                refuse=openai.error_answer,
            ),
        }

    async def run(self, call: Call) -> Record:
        submission = await self._submission(call, self._settings.run_body_bytes, sync=False)
        view = await self._plane.commands.submit(call.endpoint, submission, sync=False, key=call.caller.key)
        return records.accepted(view)

    async def runsync(self, call: Call) -> Record:
        settings = self._settings
        seconds = call.wait_s(settings.hosted_wait_ms if call.endpoint.hosted else settings.wait_ms)
        running = self._plane.commands.run_sync(
            call.endpoint,
            await self._submission(call, settings.runsync_body_bytes, sync=True),
            seconds,
            must_end=call.endpoint.hosted and "wait" not in call.query,
            key=call.caller.key,
        )
        view = await call.watched(running)
        return records.hosted_result(view) if call.endpoint.hosted else records.record(view)

    async def status(self, call: Call) -> Record:
        ttl_ms = call.ttl_ms()
        if ttl_ms is not None and not call.caller.access.may(write=True, endpoint=call.endpoint.id):
            raise may_not(call, write=True)  # it shortens the job's life
        view = await self._plane.queries.status(call.endpoint, call.job, ttl_ms)
        return records.record(view)

    async def status_sync(self, call: Call) -> Record:
        seconds = call.wait_s(self._settings.wait_ms)
        await call.body(IGNORED_BODY_BYTES)
        waiting = self._plane.queries.wait(call.endpoint, call.job, seconds)
        view = await call.while_connected(waiting)
        return records.record(view)

    async def cancel(self, call: Call) -> Record:
        """Cancels a job. A job that had ended keeps its record."""
        return records.record(await self._plane.commands.cancel(call.endpoint, call.job))

    async def retry(self, call: Call) -> Record:
        return records.accepted(await self._plane.commands.retry(call.endpoint, call.job))

    async def purge_queue(self, call: Call) -> Record:
        return records.purged(await self._plane.commands.purge(call.endpoint))

    async def requests(self, call: Call) -> Record:
        listing = parse_listing(call.query)
        return records.page(await self._plane.queries.requests(call.endpoint, listing))

    async def logs(self, call: Call) -> Record | Response:
        """Returns the stored lines; or server-sent events if the caller accepts them or follows."""
        after = parse_event_id(call.header(b"last-event-id"))
        if flag(call.query, "follow") or "text/event-stream" in (call.header(b"accept") or ""):
            return await self._log_events(call, after)
        found = await self._plane.queries.logs(call.endpoint, call.job)
        return records.logs(call.job, found)

    async def health(self, call: Call) -> Record:
        found = await self._plane.queries.health(call.endpoint)
        if call.endpoint.type == LOAD_BALANCER:
            found = self._plane.requests.counted(call.endpoint.id, found)
        return records.health(found)

    async def stream(self, call: Call) -> Record | Response:
        """Returns a poll's answer, or server-sent events if the caller accepts them."""
        await call.body(IGNORED_BODY_BYTES)  # read, so that the next message is the caller's leaving
        after = parse_event_id(call.header(b"last-event-id"))
        if "text/event-stream" in (call.header(b"accept") or ""):
            return await self._events(call, after)
        return await self._poll(call)

    async def _poll(self, call: Call) -> Record | AnswerInTurn:
        seconds = call.wait_s(self._settings.stream_wait_ms)
        await self._turns.wait(call.job)
        polling = self._plane.queries.poll_stream(call.endpoint, call.job, seconds)
        poll = await call.while_connected(polling)
        found = records.stream_poll(poll.view, poll.chunks, poll.end_reported)
        if not poll.chunks and poll.cursor.end_reported == poll.end_reported:
            return found

        async def advance() -> None:
            await self._plane.queries.advance(poll.view.id, poll.cursor)

        return AnswerInTurn(Answer(orjson.dumps(found), after=advance), self._turns, call.job)

    async def _events(self, call: Call, after: tuple[int, int] | None) -> EventAnswer[StreamEvent]:
        # An unknown job is a 404, not a stream. Its output is not looked at: it may be large, and far away.
        await self._plane.queries.view(call.endpoint, call.job)
        events = self._plane.queries.follow(call.endpoint, call.job, after)
        return EventAnswer(events, self._settings.keepalive_s, render)

    async def _log_events(self, call: Call, after: tuple[int, int] | None) -> EventAnswer[LogEvent]:
        await self._plane.queries.view(call.endpoint, call.job)
        events = self._plane.queries.follow_logs(call.endpoint, call.job, after)
        return EventAnswer(events, self._settings.keepalive_s, render_log)

    async def files(self, call: Call) -> Record:
        query = call.query
        for parameter in query:
            if parameter != "name":
                raise BadRequest(f"{parameter} is not known here; allowed: name")
        media_type = declared_media_type(call.header(b"content-type"))
        limit, encoded = self._settings.file_bytes, call.header(b"content-encoding") is not None
        received = await (call.body(limit) if encoded else call.received(limit))
        with BytesIO(received) if isinstance(received, bytes) else received as file:
            if not file.seek(0, os.SEEK_END):
                raise BadRequest("the body must be a file; it is empty")
            name = query.get("name", ["file"])[-1]
            key = call.caller.key
            kept = await self._plane.uploaded_files.keep(call.endpoint, key, name, file, media_type)
        return {
            "url": kept.url,
            "size": kept.size,
            "sha256": kept.sha256,
            "expiresAt": round(kept.expires_at * 1000),
        }

    async def _submission(self, call: Call, limit: int, *, sync: bool) -> Submission:
        body = await call.body(limit)
        key = call.header(b"idempotency-key")
        once = None if key is None else once_of(key, body, sync=sync)
        try:
            submission = await self._reader.read(parse_submission, body)
        except BadRequest as error:
            if call.endpoint.hosted:
                raise InvalidInput(str(error), names.job_id(self._settings.rng, sync=sync)) from None
            raise
        if submission.ignored:
            call.note_ignored(submission.ignored)
        return submission if once is None else replace(submission, once=once)
