"""Requests of OpenAI clients at queue endpoints: any path is a job that holds route and body.

Its output is the answer, or its chunks are the events of a stream. Files of a form are kept, and in the body
their URLs are in their places.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic_core import from_json, to_json
from starlette.responses import Response

from stoker.control.http.calls.answers import Answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.openai.running import (
    STOPPING,
    Events,
    FinishedJob,
    failure,
    finish,
    is_completed,
    streamed,
)
from stoker.control.http.calls.openai.sent import with_urls
from stoker.control.http.openai import answers
from stoker.control.http.openai.requests import OpenAIRequest
from stoker.control.rules.types import JobView


async def answer(call: Call, request: OpenAIRequest) -> Response:
    """Answers a request by a job. Raises ControlError."""
    request = await with_urls(call, request)
    if request.streams:
        return await streamed(call, request.job_input, _texts)
    return _whole(request, await call.while_connected(finish(call, request.job_input)))


def _whole(request: OpenAIRequest, finished: FinishedJob) -> Response:
    """Returns the answer of an ended job, written by `to_json`: whole numbers in an output may be larger than
    orjson writes."""
    if not is_completed(finished.view):
        return failure(finished.view)
    status, body = answers.completed(finished.output)
    if isinstance(body, str) and answers.wants_text(request.body):
        return Response(body, status, media_type="text/plain")
    return Answer(to_json(body), status)


async def _texts(events: Events) -> AsyncGenerator[bytes, None]:
    """Yields what a caller is sent. An attempt that was lost has sent chunks that cannot be taken back: the
    stream ends with an error instead of beginning again."""
    text = b""
    async with aclosing(events):
        async for event in events:
            if event.kind == "chunk":
                text = answers.event(from_json(event.value))
                yield text
            elif event.kind == "reset":
                yield answers.event(answers.error_body(502, "the worker was lost; send the request again"))
                return
            elif event.view is not None:
                yield _last_text(event.view, text)
                return
    yield STOPPING


def _last_text(view: JobView, before: bytes) -> bytes:
    """Returns what ends a stream, after the events `before`: an error, or `[DONE]` if that was not sent."""
    if not is_completed(view):
        return answers.event(answers.failed(view)[1])
    output = b""
    if not before and view.output is not None:
        output = answers.event(answers.completed(from_json(view.output))[1])
    return output if before.endswith(answers.DONE) else output + answers.DONE
