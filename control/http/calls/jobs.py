"""The operations of an endpoint, as routes: a call in, an answer out.

Nothing here depends on how a job is stored. A caller that leaves during `/runsync` leaves its job running.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from typing import Any, TypeAlias

import orjson
from fastapi import APIRouter
from msgspec.structs import replace
from starlette.responses import Response

from stoker.control.errors import BadRequest, CasesClosed, InvalidInput
from stoker.control.http.calls import shapes
from stoker.control.http.calls.answers import Answer
from stoker.control.http.calls.calls import IGNORED_BODY_BYTES, Call, may_not
from stoker.control.http.calls.documented import EVENTS, READS_BODY, refusals, submits
from stoker.control.http.calls.event_stream import EventAnswer, parse_event_id, render, render_log
from stoker.control.http.calls.forms import declared_media_type
from stoker.control.http.calls.parameters import (
    MILLISECONDS,
    Cursor,
    ErrorText,
    FileName,
    Follow,
    FromStart,
    LastEvent,
    NodeId,
    PageSize,
    ReplayNode,
    Seed,
    Since,
    State,
    StopAfter,
    StreamWait,
    Ttl,
    Until,
    Wait,
    WorkerId,
    once_of,
    whole_number,
)
from stoker.control.http.calls.route import Held, OperationRoute, Writing
from stoker.control.http.calls.turns import AnswerInTurn
from stoker.control.jobs import records
from stoker.control.jobs.replay_rules import Wish
from stoker.control.large_json import LARGE_BYTES
from stoker.control.rules.limits import DEFAULT_PAGE_SIZE, FILE_BYTES, MIB, RUN_BYTES, RUNSYNC_BYTES, WAIT_MS
from stoker.control.rules.submissions import Submission, job_id, parse_submission
from stoker.control.rules.types import Listing
from stoker.control.traces.traceparent import kept_traceparent

PREFIX = "/v2/{endpoint_id}"
Operation: TypeAlias = Callable[..., Awaitable[Response]]
writing = APIRouter(prefix=PREFIX, route_class=Writing, tags=["jobs"])
reading = APIRouter(prefix=PREFIX, route_class=OperationRoute, tags=["jobs"])
held = APIRouter(prefix=PREFIX, route_class=Held, tags=["jobs"])

_RECORD: Any = {"response_model": shapes.Record}


def both(router: APIRouter, path: str, **options: Any) -> Callable[[Operation], Operation]:
    """Returns a decorator of operations that are called by GET and by POST."""

    def add(operation: Operation) -> Operation:
        return router.post(path, **options)(router.get(path, **options)(operation))

    return add


# -- submissions


@writing.post("/runsync", **_RECORD, **submits(RUNSYNC_BYTES, waits=True))
async def runsync(call: Call) -> Answer:
    """Queues a job and waits for its result. If the wait passes first, the answer is the record as it stands
    and the job goes on. Leaving does not cancel the job. The results of hosted models carry only COMPLETED or
    FAILED: where no `wait` is given, one that has not ended after 300 s is stopped and has FAILED, and costs
    nothing."""
    settings, hosted = call.settings, call.endpoint.hosted
    sent = call.query_params.get("wait") if call.scope["query_string"] else None
    default_ms = settings.hosted_wait_ms if hosted else settings.wait_ms
    seconds = (default_ms if sent is None else whole_number("wait", sent, WAIT_MS, MILLISECONDS)) / 1000
    running = call.plane.commands.run_sync(
        call.endpoint,
        await _submission(call, settings.runsync_body_bytes, sync=True),
        seconds,
        must_end=hosted and sent is None,
        caller=call.caller,
    )
    view = await call.watched(running)
    return call.answer(records.hosted_result(view) if hosted else records.record(view))


@writing.post("/run", response_model=shapes.Accepted, **submits(RUN_BYTES, waits=False))
async def run(call: Call) -> Answer:
    """Queues a job and answers at once. The result stays readable after the job's end: for 30 minutes, unless
    the operator says otherwise."""
    submission = await _submission(call, call.settings.run_body_bytes, sync=False)
    view = await call.plane.commands.submit(call.endpoint, submission, sync=False, caller=call.caller)
    return call.answer(records.accepted(view))


async def _submission(call: Call, limit: int, *, sync: bool) -> Submission:
    body = await call.read(limit)
    key = call.header(b"idempotency-key")
    once = None if key is None else once_of(key, body, sync=sync)
    try:
        if len(body) <= LARGE_BYTES:  # as nearly all are
            submission = parse_submission(body)
        else:
            submission = await call.plane.large_json.read(parse_submission, body)
    except BadRequest as error:
        if call.endpoint.hosted:
            raise InvalidInput(str(error), job_id(call.settings.rng, sync=sync)) from None
        raise
    if submission.ignored:
        call.note_ignored(submission.ignored)
    if (traceparent := call.header(b"traceparent")) is not None:
        submission = replace(submission, traceparent=kept_traceparent(traceparent))
    return submission if once is None else replace(submission, once=once)


# -- one job


@both(reading, "/status/{job_id}", responses=refusals(400), **_RECORD)
async def status(call: Call, ttl: Ttl = None) -> Answer:
    """Returns a job's record. While the job runs, `output` is its last progress value. `ttl` shortens its
    life."""
    if ttl is not None and not call.caller.access.may(write=True, endpoint=call.endpoint.rights):
        raise may_not(call, write=True)
    view = await call.plane.queries.status(call.endpoint, call.job, ttl)
    return call.answer(records.record(view, call.endpoint.replay))


@both(held, "/status-sync/{job_id}", responses=refusals(*READS_BODY), **_RECORD)
async def status_sync(call: Call, wait: Wait = None) -> Answer:
    """Returns a job's record once it has ended. If the wait passes first, the answer is the record as it
    stands."""
    await call.read(IGNORED_BODY_BYTES)
    seconds = (wait or call.settings.wait_ms) / 1000
    waiting = call.plane.queries.wait(call.endpoint, call.job, seconds)
    return call.answer(records.record(await call.while_connected(waiting), call.endpoint.replay))


@both(
    held,
    "/stream/{job_id}",
    response_model=shapes.StreamPoll,
    responses={**refusals(*READS_BODY), **EVENTS},
)
async def stream(call: Call, wait: StreamWait = None, last: LastEvent = None) -> Response:
    """Returns what a job gave since the last call, or its events as they happen. Each poll answers with the
    chunks that no poll got before, held while there are none; the job's end comes together with its last
    chunks. A poll after CANCELLED reads FAILED, which every client takes for an end. With `Accept:
    text/event-stream` the answer is a stream of events chunk, progress, reset and end; `Last-Event-ID` takes
    it up where it broke off."""
    await call.read(IGNORED_BODY_BYTES)  # so that the next message is the caller's leaving
    after = parse_event_id(last) if last else None
    queries, settings = call.plane.queries, call.settings
    if call.accepts_events():
        # An unknown job is a 404, not a stream. Its output is not looked at: it may be large, and far away.
        await queries.view(call.endpoint, call.job)
        events = queries.follow(call.endpoint, call.job, after)
        return EventAnswer(events, settings.keepalive_s, partial(render, replay=call.endpoint.replay))
    return await _poll(call, (wait or settings.stream_wait_ms) / 1000)


async def _poll(call: Call, seconds: float) -> Response:
    queries, turns = call.plane.queries, call.shared.turns
    await turns.wait(call.job)
    poll = await call.while_connected(queries.poll_stream(call.endpoint, call.job, seconds))
    found = records.stream_poll(poll.view, poll.chunks, poll.end_reported)
    if not poll.chunks and poll.cursor.end_reported == poll.end_reported:
        return call.answer(found)

    async def advance() -> None:
        await queries.advance(poll.view.id, poll.cursor)

    return AnswerInTurn(Answer(orjson.dumps(found), after=advance), turns, call.job)


@writing.post("/cancel/{job_id}", response_model=shapes.EndedRecord)
async def cancel(call: Call) -> Answer:
    """Stops a job, queued or running. It reads CANCELLED at once; one that had ended keeps its record."""
    view = await call.plane.commands.cancel(call.endpoint, call.job)
    return call.answer(records.record(view, call.endpoint.replay))


@writing.post("/retry/{job_id}", response_model=shapes.Accepted, responses=refusals(400))
async def retry(call: Call) -> Answer:
    """Queues a job again that is FAILED or TIMED_OUT. Id, input and ttl stay; the old result is deleted."""
    return call.answer(records.accepted(await call.plane.commands.retry(call.endpoint, call.job)))


@reading.get("/logs/{job_id}", response_model=shapes.Logs, responses={**refusals(400), **EVENTS})
async def logs(call: Call, follow: Follow = False, last: LastEvent = None) -> Response:
    """Returns the last lines that a job's handler wrote. There are at most 100 lines and 16 KiB of
    each attempt, once it has ended. With `follow=true`, or with `Accept: text/event-stream`, the answer is a
    stream of events log, skipped, reset and end: what is still kept first, then lines as they are printed;
    `Last-Event-ID` takes it up where it broke off."""
    after = parse_event_id(last) if last else None
    queries = call.plane.queries
    if not follow and not call.accepts_events():
        return call.answer(records.logs(call.job, await queries.logs(call.endpoint, call.job)))
    await queries.view(call.endpoint, call.job)
    lines = queries.follow_logs(call.endpoint, call.job, after)
    return EventAnswer(lines, call.settings.keepalive_s, render_log)


@reading.get("/attempts/{job_id}", response_model=shapes.Attempts)
async def attempts(call: Call) -> Answer:
    """Returns when the job was submitted and ended, and its attempts, oldest first: worker and node of each,
    its moments, and why it ended. Moments that nobody measured are absent; a running attempt has no
    `startedAt` yet. Of a job that was tried very often, the last 50 are kept."""
    return call.answer(records.attempts(call.job, await call.plane.details.attempts(call.endpoint, call.job)))


@reading.get("/input/{job_id}", response_model=shapes.JobInput, responses=refusals(403))
async def job_input(call: Call) -> Answer:
    """Returns the input of a job, to the key that submitted it. A key with the right `cases`, or for
    everything, gets those of others, too, without the user, the query and the fragment of their URLs."""
    body = await call.plane.details.input(call.endpoint, call.job, call.caller)
    return call.answer({"id": call.job, "input": orjson.Fragment(body)})


@reading.get("/case/{job_id}", response_model=shapes.Case, responses=refusals(403))
async def case(call: Call) -> Answer:
    """Returns the case of a job that failed, or completed: what is needed to run it again elsewhere, as
    `stoker replay` does. The endpoint keeps cases if its `keepCases` is true. The key needs the right
    `cases`, or everything. No value of a user's variable and no query of a URL is in it."""
    _check_cases(call)
    return Answer(await call.plane.details.case(call.endpoint, call.job))


def _check_cases(call: Call) -> None:
    if not call.caller.access.may_read_cases(call.endpoint.rights):
        raise CasesClosed(
            f"this key may not read the cases of jobs at endpoint {call.path_params['endpoint_id']};"
            " `stoker key create --cases` makes one that may"
        )


@writing.post("/replay/{job_id}", response_model=shapes.Replayed, responses=refusals(400, 403, 409))
async def replay(
    call: Call, node: ReplayNode, from_start: FromStart = False, stop_after: StopAfter = 0, seed: Seed = None
) -> Answer:
    """Runs a job again on a node, from its case: what it ran, with its input, from its last save. The
    replay is a job of an endpoint that is made for it, and deleted an hour after its last use; it costs
    nothing, and is tried once. The key needs the right `cases` too."""
    _check_cases(call)
    wish = Wish(node, from_start, stop_after, seed)
    return call.answer(records.replayed(await call.plane.replays.start(call.endpoint, call.job, wish)))


# -- the endpoint


@writing.post("/purge-queue", response_model=shapes.Purged)
async def purge_queue(call: Call) -> Answer:
    """Cancels every job that waits. Running jobs go on."""
    return call.answer(records.purged(await call.plane.commands.purge(call.endpoint)))


@reading.get("/requests", response_model=shapes.Page, responses=refusals(400))
async def requests(
    call: Call,
    since: Since = None,
    status: State = None,
    limit: PageSize = DEFAULT_PAGE_SIZE,
    cursor: Cursor = None,
    until: Until = None,
    worker: WorkerId = None,
    node: NodeId = None,
    error: ErrorText = None,
) -> Answer:
    """Returns the endpoint's jobs, newest first. The records have no output. A page may hold fewer than
    `limit` records, even none, as one looks through 10,000 jobs at most: it is the last when `cursor` is
    null."""
    listing = Listing(status, _seconds(since), limit, cursor, _seconds(until), worker, node, error)
    return call.answer(records.page(await call.plane.queries.requests(call.endpoint, listing)))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


@reading.get("/health", response_model=shapes.Health)
async def health(call: Call) -> Answer:
    """Returns counters of jobs and workers. All eleven counters, always."""
    return call.answer(records.health(await call.plane.queries.health(call.endpoint)))


_FILE = {"schema": {"type": "string", "format": "binary", "minLength": 1}}


@writing.post(
    "/files",
    response_model=shapes.GivenFile,
    responses=refusals(*READS_BODY),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": f"The file, of at most {FILE_BYTES // MIB} MiB.",
            "content": {"application/octet-stream": _FILE},
        }
    },
)
async def files(call: Call, name: FileName = "file") -> Answer:
    """Stores a file, for an input that is a URL. The answer's `url` can be named in an input for a day; then
    the file is deleted."""
    for parameter in call.query_params:
        if parameter != "name":
            raise BadRequest(f"{parameter} is not known here; allowed: name")
    media_type = declared_media_type(call.header(b"content-type"))
    limit, encoded = call.settings.file_bytes, call.header(b"content-encoding") is not None
    received = await (call.read(limit) if encoded else call.received(limit))
    with BytesIO(received) if isinstance(received, bytes) else received as file:
        if not file.seek(0, os.SEEK_END):
            raise BadRequest("the body must be a file; it is empty")
        kept = await call.plane.uploaded_files.keep(call.endpoint, call.caller, name, file, media_type)
    at_ms = round(kept.expires_at * 1000)
    return call.answer({"url": kept.url, "size": kept.size, "sha256": kept.sha256, "expiresAt": at_ms})


ROUTES = [*writing.routes, *reading.routes, *held.routes]
