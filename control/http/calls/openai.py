"""`/v2/{endpoint}/openai/...`: an endpoint behind the official OpenAI clients.

    queue endpoint      any path    ─> a job that holds route and body; its output, or its chunks as events
    hosted image model  /v1/images/generations ─> a job for each image;  /v1/models ─> the model
    hosted video model  /v1/videos  ─> `videos`

Except for a video, the job belongs to its caller: one that leaves cancels it, since no other caller has its
id.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter
from pydantic_core import from_json, to_json
from starlette.responses import Response

from stoker.control.errors import ControlError, NotFound, Unavailable
from stoker.control.http.calls import videos
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import IGNORED_BODY_BYTES, Call
from stoker.control.http.calls.event_stream import EventAnswer
from stoker.control.http.calls.jobs import PREFIX
from stoker.control.http.calls.route import OperationRoute
from stoker.control.http.openai import answers, completions, images
from stoker.control.http.openai.requests import OpenAIRequest, parse_request
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.submissions import parse_submission
from stoker.control.rules.types import Endpoint, JobView
from stoker.control.traces.traceparent import kept_traceparent
from stoker.wire.messages import Ref
from stoker.wire.names import attempt_prefix

MODELS = "/v1/models"
NOT_AGAIN = ((b"x-should-retry", b"false"),)
"""The official clients send a request again after a 5xx; a handler that raised would raise again."""

IMAGE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job's end, and the chunks of its last attempt."""

    view: JobView
    chunks: list[Any]

    @property
    def output(self) -> Any:
        """Returns what the handler returned, or joins the chunks of a generator that is not marked as
        aggregate: its output is an empty list."""
        output = from_json(self.view.output or b"null")
        return completions.joined(self.chunks) if self.chunks and output in (None, []) else output


class OpenAIRoute(OperationRoute):
    writes = True
    held = True

    def shaped(self, refusal: Answer) -> Answer:
        """Returns a refusal in the shape of the OpenAI API."""
        message = str(from_json(refusal.body)["error"])
        return replace(refusal, body=to_json(answers.error_body(refusal.status, message)))


router = APIRouter(prefix=PREFIX, route_class=OpenAIRoute, include_in_schema=False)


@router.get("/openai{job_id:path}")
@router.post("/openai{job_id:path}")
async def openai(call: Call) -> Response:
    """Answers a request of an OpenAI client."""
    if videos.serves(call):
        return await videos.answer(call)
    method = call.method
    body = await call.read(IGNORED_BODY_BYTES if method == "GET" else call.settings.run_body_bytes)
    parse = partial(parse_request, method, call.job, call.header(b"content-type"))
    request = await call.shared.reader.read(parse, body)
    if call.endpoint.hosted:
        return await call.while_connected(_hosted(call, request))
    if request.streams:
        return await _stream(call, request)
    return _answer(await call.while_connected(_finish(call, request.job_input)))


async def _hosted(call: Call, request: OpenAIRequest) -> Answer:
    if request.route == MODELS:
        return json_answer({"object": "list", "data": [_model(call.endpoint)]})
    properties = (call.endpoint.run.schema or {}).get("properties", {})
    if request.route != images.ROUTE or request.body is None or "image_format" not in properties:
        raise NotFound(f"{call.method} {request.route} is not served by {call.endpoint.id}")
    return await _images(call, images.parse_images(request.body))


async def _images(call: Call, request: images.ImagesRequest) -> Answer:
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_finish(call, one)) for one in request.inputs]
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finished = [task.result() for task in running]
    for one in finished:
        if one.view.state is not JobState.COMPLETED:
            return _answer(one)
    data = [await _image(call, one, as_base64=request.as_base64) for one in finished]
    return json_answer({"created": int(finished[0].view.created_at), "data": data})


async def _image(call: Call, finished: FinishedJob, *, as_base64: bool) -> dict[str, Any]:
    output = finished.output
    if not as_base64:
        return {"url": output["image_url"], "seed": output["seed"]}
    key = _key_of(output["image_url"], finished.view)
    data = await call.plane.artifacts.get(Ref(key, IMAGE_BYTES, ""))
    return {"b64_json": base64.b64encode(data).decode(), "seed": output["seed"]}


async def _finish(call: Call, job_input: Mapping[str, Any]) -> FinishedJob:
    chunks: list[Any] = []
    async with aclosing(_events(call, job_input)) as events:
        async for event in events:
            match event.kind:
                case "chunk":
                    chunks.append(from_json(event.value))
                case "reset":
                    chunks.clear()
                case "end" if event.view is not None:
                    return FinishedJob(event.view, chunks)
    raise Unavailable("the service is stopping; ask again")


async def _stream(call: Call, request: OpenAIRequest) -> Response:
    """Returns a stream of events. A failure before the first chunk is an answer with its own status;
    later a failure is an event."""
    events = _events(call, request.job_input)
    first = await call.while_connected(_first_chunk(events))
    if first is None:
        raise Unavailable("the service is stopping; ask again")
    if first.view is not None and first.view.state is not JobState.COMPLETED:
        await events.aclose()
        return _answer(FinishedJob(first.view, []))
    return EventAnswer(_texts(first, events), call.settings.keepalive_s, bytes)


async def _events(call: Call, job_input: Mapping[str, Any]) -> AsyncGenerator[StreamEvent, None]:
    """Yields a new job's events to its end. Closing the generator earlier cancels the job."""
    submission = parse_submission(to_json({"input": job_input}))
    submission = replace(submission, traceparent=kept_traceparent(call.header(b"traceparent")))
    view = await call.plane.commands.submit(call.endpoint, submission, sync=True, key=call.caller.key)
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


async def _first_chunk(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent | None:
    """Returns the first chunk, or the end of a job without chunks; None where the service stops."""
    async for event in events:
        if event.kind in ("chunk", "end"):
            return event
    return None


async def _texts(
    first: StreamEvent, events: AsyncGenerator[StreamEvent, None]
) -> AsyncGenerator[bytes, None]:
    """Yields what a caller is sent. An attempt that was lost has sent chunks that cannot be taken back: the
    stream ends with an error instead of beginning again."""
    event: StreamEvent | None = first
    text = b""
    async with aclosing(events):
        while event is not None:
            if event.kind == "chunk":
                text = answers.event(from_json(event.value))
                yield text
            elif event.kind == "reset":
                yield answers.event(answers.error_body(502, "the worker was lost; send the request again"))
                return
            elif event.view is not None:
                yield _last_text(event.view, text)
                return
            event = await anext(events, None)
    yield answers.event(answers.error_body(503, "the service is stopping; send the request again"))


def _last_text(view: JobView, before: bytes) -> bytes:
    """Returns what ends a stream, after the events `before`: an error, or `[DONE]` if that was not sent."""
    if view.state is not JobState.COMPLETED:
        return answers.event(answers.failed(view)[1])
    output = b""
    if not before and view.output is not None:
        output = answers.event(answers.completed(from_json(view.output))[1])
    return output if before.endswith(answers.DONE) else output + answers.DONE


def _answer(finished: FinishedJob) -> Answer:
    """Returns the answer of an ended job, written by `to_json`: whole numbers in an output may be larger than
    orjson writes."""
    if finished.view.state is JobState.COMPLETED:
        status, body = answers.completed(finished.output)
        return Answer(to_json(body), status)
    status, body = answers.failed(finished.view)
    return Answer(to_json(body), status, NOT_AGAIN)


def _model(endpoint: Endpoint) -> dict[str, Any]:
    return {"id": endpoint.id, "object": "model", "created": int(endpoint.created_at), "owned_by": "stoker"}


def _key_of(url: str, view: JobView) -> str:
    """Returns the object's key, which is the end of its URL's path."""
    path, prefix = unquote(urlsplit(url).path), attempt_prefix(view.endpoint, view.id, view.attempt)
    return path[path.index(prefix) :]
