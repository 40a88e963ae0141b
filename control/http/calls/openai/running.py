"""Jobs of OpenAI requests, which belong to their callers: one that leaves cancels its job, since no other has
the job's id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import from_json, to_json
from starlette.responses import Response

from stoker.control.errors import ControlError, Unavailable
from stoker.control.http.calls.answers import Answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.event_stream import EventAnswer
from stoker.control.http.openai import answers, completions
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.submissions import Submission, parse_submission
from stoker.control.rules.types import JobView
from stoker.control.traces.traceparent import kept_traceparent

Events: TypeAlias = AsyncGenerator[StreamEvent, None]
Texts: TypeAlias = Callable[[Events], AsyncGenerator[bytes, None]]
"""Makes what a caller is sent of the events of a job, from its first chunk on."""

NOT_AGAIN = ((b"x-should-retry", b"false"),)
"""The official clients send a request again after a 5xx; a handler that raised would raise again."""


class FinishedJob(Struct, frozen=True):
    """A job's end, and the chunks of its last attempt."""

    view: JobView
    chunks: list[Any]

    @property
    def output(self) -> Any:
        """Returns what the handler returned. The completion chunks of a generator are joined to one
        completion, whether they are its output or, as it is not marked as aggregate, only its chunks."""
        output = from_json(self.view.output or b"null")
        if self.chunks and output in (None, []):
            return completions.joined(self.chunks)
        whole = completions.completion(output) if isinstance(output, list) else None
        return output if whole is None else whole


async def finish(call: Call, job_input: Mapping[str, Any]) -> FinishedJob:
    """Runs a job to its end. Raises ControlError."""
    chunks: list[Any] = []
    async with aclosing(events_of(call, job_input)) as events:
        async for event in events:
            match event.kind:
                case "chunk":
                    chunks.append(from_json(event.value))
                case "reset":
                    chunks.clear()
                case "end" if event.view is not None:
                    return FinishedJob(event.view, chunks)
    raise Unavailable("the service is stopping; ask again")


async def events_of(call: Call, job_input: Mapping[str, Any]) -> Events:
    """Yields a new job's events to its end. Closing the generator earlier cancels the job."""
    submission = submission_of(call, job_input)
    view = await call.plane.commands.submit(call.endpoint, submission, sync=True, caller=call.caller)
    ended = False
    try:
        following = call.plane.queries.follow(call.endpoint, view.id, None)
        async with aclosing(following) as events:
            async for event in events:
                ended = event.kind == "end"
                yield event
    finally:
        if not ended:
            with suppress(ControlError):  # it was deleted, or the store is down: its ttl ends it
                await call.plane.commands.cancel(call.endpoint, view.id)


def submission_of(call: Call, job_input: Mapping[str, Any]) -> Submission:
    """Returns the job of an input, with the span of its caller as the parent."""
    submission = parse_submission(to_json({"input": job_input}))
    return replace(submission, traceparent=kept_traceparent(call.header(b"traceparent")))


async def streamed(call: Call, job_input: Mapping[str, Any], texts: Texts) -> Response:
    """Returns a stream of the texts of a new job's events. A failure before the first chunk is an answer with
    its own status; a later one is for `texts` to say. Raises ControlError."""
    events = events_of(call, job_input)
    first = await call.while_connected(_first_chunk(events))
    if first is None:
        raise Unavailable("the service is stopping; ask again")
    if first.view is not None and not is_completed(first.view):
        await events.aclose()
        return failure(first.view)
    return EventAnswer(texts(_from_first(first, events)), call.settings.keepalive_s, bytes)


async def _first_chunk(events: Events) -> StreamEvent | None:
    """Returns the first chunk, or the end of a job without chunks; None where the service stops."""
    async for event in events:
        if event.kind in ("chunk", "end"):
            return event
    return None


async def _from_first(first: StreamEvent, events: Events) -> Events:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


def failure(view: JobView) -> Answer:
    """Returns the answer of a job that ended without an output."""
    status, body = answers.failed(view)
    return Answer(to_json(body), status, NOT_AGAIN)


STOPPING = answers.event(answers.error_body(503, "the service is stopping; send the request again"))
"""What ends a stream whose job goes on."""


def is_completed(view: JobView) -> bool:
    return view.state is JobState.COMPLETED
