"""What each operation of an endpoint does: a call in, an answer out. One table names them all.

Nothing here knows how a request arrives (`door`) or how a job is kept (`seam`). A caller that leaves during
`/runsync` leaves its job running.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from stoker.control import records
from stoker.control.api.answers import Answer, json_answer
from stoker.control.api.calls import IGNORED_BODY_BYTES, Call
from stoker.control.api.events import EventAnswer, parse_event_id, render, render_log
from stoker.control.api.limits import held, held_while_here
from stoker.control.api.questions import flag, once_of, parse_listing
from stoker.control.api.seam import ApiSettings, PlaneApi
from stoker.control.api.turns import AnswerInTurn, Turns
from stoker.control.errors import BadRequest, InvalidInput
from stoker.control.submissions import parse_submission
from stoker.control.types import LogEvent, StreamEvent, Submission
from stoker.wire import names

Given: TypeAlias = Answer | AnswerInTurn | EventAnswer[StreamEvent] | EventAnswer[LogEvent]
Handler: TypeAlias = Callable[[Call], Awaitable[Given]]


@dataclass(frozen=True, slots=True)
class Operation:
    methods: tuple[str, ...]
    takes_job: bool
    handle: Handler
    writes: bool = False


class Operations:
    def __init__(self, plane: PlaneApi, settings: ApiSettings) -> None:
        self._plane = plane
        self._settings = settings
        self._turns = Turns()
        self.table: dict[str, Operation] = {
            "run": Operation(("POST",), False, self.run, writes=True),
            "runsync": Operation(("POST",), False, self.runsync, writes=True),
            "status": Operation(("GET", "POST"), True, self.status),
            "status-sync": Operation(("GET", "POST"), True, self.status_sync),
            "stream": Operation(("GET", "POST"), True, self.stream),
            "cancel": Operation(("POST",), True, self.cancel, writes=True),
            "retry": Operation(("POST",), True, self.retry, writes=True),
            "purge-queue": Operation(("POST",), False, self.purge_queue, writes=True),
            "requests": Operation(("GET",), False, self.requests),
            "logs": Operation(("GET",), True, self.logs),
            "files": Operation(("POST",), False, self.files, writes=True),
            "health": Operation(("GET",), False, self.health),
        }

    async def run(self, call: Call) -> Answer:
        submission = await self._submission(call, self._settings.run_body_bytes, sync=False)
        view = await self._plane.submit(call.account, call.endpoint, submission, sync=False)
        return json_answer(records.accepted(view))

    async def runsync(self, call: Call) -> Answer:
        settings = self._settings
        seconds = call.wait_s(settings.hosted_wait_ms if call.hosted else settings.wait_ms)
        running = self._plane.run_sync(
            call.account,
            call.endpoint,
            await self._submission(call, settings.runsync_body_bytes, sync=True),
            seconds,
        )
        view = await held(call, running)
        return json_answer(records.hosted_result(view) if call.hosted else records.record(view))

    async def status(self, call: Call) -> Answer:
        ttl_ms = call.ttl_ms()
        if ttl_ms is not None:
            call.allow(write=True)  # it shortens the job's life
        view = await self._plane.status(call.account, call.endpoint, call.job, ttl_ms)
        return json_answer(records.record(view))

    async def status_sync(self, call: Call) -> Answer:
        seconds = call.wait_s(self._settings.wait_ms)
        await call.body(IGNORED_BODY_BYTES)
        asked = self._plane.wait(call.account, call.endpoint, call.job, seconds)
        view = await held_while_here(call, asked)
        return json_answer(records.record(view))

    async def cancel(self, call: Call) -> Answer:
        """A job that had ended keeps its record."""
        return json_answer(records.record(await self._plane.cancel(call.account, call.endpoint, call.job)))

    async def retry(self, call: Call) -> Answer:
        return json_answer(records.accepted(await self._plane.retry(call.account, call.endpoint, call.job)))

    async def purge_queue(self, call: Call) -> Answer:
        return json_answer(records.purged(await self._plane.purge(call.account, call.endpoint)))

    async def requests(self, call: Call) -> Answer:
        listing = parse_listing(call.asked())
        return json_answer(records.page(await self._plane.requests(call.account, call.endpoint, listing)))

    async def logs(self, call: Call) -> Given:
        """What is kept; or server-sent events to whoever accepts them, or asks to follow."""
        after = parse_event_id(call.header(b"last-event-id"))
        if flag(call.asked(), "follow") or "text/event-stream" in (call.header(b"accept") or ""):
            return await self._log_events(call, after)
        found = await self._plane.logs(call.account, call.endpoint, call.job)
        return json_answer(records.logs(call.job, found))

    async def health(self, call: Call) -> Answer:
        return json_answer(records.health(await self._plane.health(call.account, call.endpoint)))

    async def stream(self, call: Call) -> Given:
        """A poll, or server-sent events to whoever accepts them."""
        await call.body(IGNORED_BODY_BYTES)  # read, so that the next message is the caller's leaving
        after = parse_event_id(call.header(b"last-event-id"))
        if "text/event-stream" in (call.header(b"accept") or ""):
            return await self._events(call, after)
        return await self._poll(call)

    async def _poll(self, call: Call) -> Answer | AnswerInTurn:
        seconds = call.wait_s(self._settings.stream_wait_ms)
        await self._turns.wait(call.job)
        asked = self._plane.poll_stream(call.account, call.endpoint, call.job, seconds)
        poll = await held_while_here(call, asked)
        answer = json_answer(records.stream_poll(poll.view, poll.chunks, poll.told))
        if not poll.chunks and poll.cursor.told == poll.told:
            return answer

        async def advance() -> None:
            await self._plane.advance(poll.view.id, poll.cursor)

        return AnswerInTurn(Answer(answer.body, after=advance), self._turns, call.job)

    async def _events(self, call: Call, after: tuple[int, int] | None) -> EventAnswer[StreamEvent]:
        # An unknown job is a 404, not a stream. Its output is not looked at: it may be large, and far away.
        await self._plane.view(call.account, call.endpoint, call.job)
        events = self._plane.follow(call.account, call.endpoint, call.job, after)
        return EventAnswer(events, self._settings.keepalive_s, render)

    async def _log_events(self, call: Call, after: tuple[int, int] | None) -> EventAnswer[LogEvent]:
        await self._plane.view(call.account, call.endpoint, call.job)
        events = self._plane.follow_logs(call.account, call.endpoint, call.job, after)
        return EventAnswer(events, self._settings.keepalive_s, render_log)

    async def files(self, call: Call) -> Answer:
        given = call.asked()
        for parameter in given:
            if parameter != "name":
                raise BadRequest(f"{parameter} is not known here; allowed: name")
        data = await call.body(self._settings.file_bytes)
        if not data:
            raise BadRequest("the body must be a file; it is empty")
        media_type = call.header(b"content-type") or "application/octet-stream"
        name = given.get("name", ["file"])[-1]
        kept = await self._plane.keep_file(call.account, call.endpoint, name, data, media_type)
        return json_answer(
            {
                "url": kept.url,
                "size": kept.size,
                "sha256": kept.sha256,
                "expiresAt": round(kept.expires_at * 1000),
            }
        )

    async def _submission(self, call: Call, limit: int, *, sync: bool) -> Submission:
        body = await call.body(limit)
        once = once_of(call.header(b"idempotency-key"), body, sync=sync)
        try:
            submission = parse_submission(body)
        except BadRequest as error:
            if call.hosted:
                raise InvalidInput(str(error), names.job_id(self._settings.rng, sync=sync)) from None
            raise
        return submission if once is None else replace(submission, once=once)
