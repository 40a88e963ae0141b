"""`/v2/{endpoint}/openai/v1/videos`: the hosted model of talking videos behind the official OpenAI clients.

POST /v1/videos                a job; what was sent as a file is kept for it
GET  /v1/videos/{id}           the job, as a video
GET  /v1/videos/{id}/content   a redirect to the signed URL of its file
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from urllib.parse import parse_qs

from pydantic_core import from_json, to_json

from stoker.control.errors import BadRequest, NotFound
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import IGNORED_BODY_BYTES, Call
from stoker.control.http.calls.forms import form_fields
from stoker.control.http.openai import videos
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import parse_submission
from stoker.control.traces.traceparent import kept_traceparent

POLL_MS = b"1000"
"""How often the official clients shall ask."""


def serves(call: Call) -> bool:
    """Returns whether the call is for a path of /v1/videos, at a hosted model of talking videos."""
    properties = (call.endpoint.run.schema or {}).get("properties", {})
    at_videos = call.job == videos.ROUTE or call.job.startswith(f"{videos.ROUTE}/")
    return call.endpoint.hosted and at_videos and "audio" in properties


async def answer(call: Call) -> Answer:
    """Answers a request for a video. Raises ControlError."""
    method, parts = call.method, call.job.removeprefix(videos.ROUTE).split("/")[1:]
    if method == "POST" and not parts:
        return await _create(call)
    await call.read(IGNORED_BODY_BYTES)
    match parts:
        case [job] if method == "GET" and job:
            return await _retrieve(call, job)
        case [job, "content"] if method == "GET":
            return await _content(call, job)
    raise NotFound(f"{method} {call.job} is not served by {call.endpoint.id}")


async def _create(call: Call) -> Answer:
    body = await call.read(call.settings.file_bytes)
    fields = await form_fields(call.header(b"content-type") or "", body, call.shared.reader)
    parsed = videos.parse_video(fields)
    files = {"image": parsed.image, "audio": parsed.audio}
    urls = {name: await _url(call, name, value) for name, value in files.items()}
    submission = parse_submission(to_json({"input": {**parsed.rest, **urls}}))
    submission = replace(submission, traceparent=kept_traceparent(call.header(b"traceparent")))
    view = await call.plane.commands.submit(call.endpoint, submission, sync=False, key=call.caller.key)
    return json_answer(videos.video_object(view))


async def _url(call: Call, name: str, value: str | videos.SentFile) -> str:
    if isinstance(value, str):
        return value
    key, file = call.caller.key, BytesIO(value.data)
    kept = await call.plane.uploaded_files.keep(call.endpoint, key, name, file, value.media_type)
    return kept.url


async def _retrieve(call: Call, job: str) -> Answer:
    answer = json_answer(videos.video_object(await call.plane.queries.status(call.endpoint, job)))
    return Answer(answer.body, more=((b"openai-poll-after-ms", POLL_MS),))


async def _content(call: Call, job: str) -> Answer:
    query = parse_qs(call.scope["query_string"].decode("latin-1"))
    if (variant := query.get("variant", ["video"])[-1]) != "video":
        raise BadRequest(f"variant must be video; got {variant[:100]!r}")
    view = await call.plane.queries.status(call.endpoint, job)
    if view.state is not JobState.COMPLETED or view.output is None:
        raise NotFound(f"video {job} has no content: its job is {view.state}")
    url = str(from_json(view.output)["video_url"])
    return Answer(to_json({"url": url}), 302, ((b"location", url.encode()),))
