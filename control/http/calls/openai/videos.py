"""`/v2/{endpoint}/openai/v1/videos`: the hosted model of talking videos behind the official OpenAI clients.

POST   /v1/videos                a job; what was sent as a file is kept for it
GET    /v1/videos                the endpoint's jobs, as videos, newest first
GET    /v1/videos/{id}           the job, as a video
GET    /v1/videos/{id}/content   a redirect to the signed URL of its file
DELETE /v1/videos/{id}           deletes the job, its record and its files
"""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qs

from pydantic_core import from_json, to_json

from stoker.control.errors import BadRequest, NotFound
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.openai.running import submission_of
from stoker.control.http.calls.openai.sent import request_of, url_of
from stoker.control.http.openai import videos
from stoker.control.http.openai.requests import OpenAIRequest
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Endpoint, Listing

POLL_MS = b"1000"
"""How often the official clients shall ask."""


def is_at(route: str) -> bool:
    """Returns whether a route is one of videos."""
    return route == videos.ROUTE or route.startswith(f"{videos.ROUTE}/")


def serves(endpoint: Endpoint) -> bool:
    """Returns whether the endpoint is a hosted model of talking videos."""
    return endpoint.hosted and "audio" in (endpoint.run.schema or {}).get("properties", {})


async def endpoint_of(call: Call, job: str) -> str:
    """Returns the endpoint that made a video. Raises NotFound."""
    for endpoint in _callable(call):
        with suppress(NotFound):
            return (await call.plane.queries.view(endpoint, job)).endpoint
    raise NotFound(f"no video {job[:100]!r}: the id is wrong, or its time has passed")


def endpoint_of_list(call: Call) -> str:
    """Returns the endpoint whose videos are listed: the only one, or the `model` of the query. Raises
    NotFound and BadRequest."""
    if (named := call.query_params.get("model")) is not None:
        return named
    found = sorted(endpoint.id for endpoint in _callable(call))
    if not found:
        raise NotFound("there is no hosted model of talking videos that this key may call")
    if len(found) > 1:
        raise BadRequest(
            f"model is missing: name one of {', '.join(found)} in the query, as ?model={found[0]}"
        )
    return found[0]


def _callable(call: Call) -> list[Endpoint]:
    caller = call.caller
    found = [
        one for one in call.plane.endpoints.by_id.values() if one.account == caller.account and serves(one)
    ]
    return [one for one in found if caller.access.may(write=True, endpoint=one.id)]


async def answer(call: Call, request: OpenAIRequest) -> Answer:
    """Answers a request for a video. Raises ControlError."""
    method, parts = call.method, call.job.removeprefix(videos.ROUTE).split("/")[1:]
    if method == "POST" and not parts:
        return await _create(call, request)
    match parts:
        case [] if method == "GET":
            return await _list(call)
        case [job] if method == "GET" and job:
            return await _retrieve(call, job)
        case [job, "content"] if method == "GET":
            return await _content(call, job)
    raise NotFound(f"{method} {call.job} is not served by {call.endpoint.id}")


async def _create(call: Call, request: OpenAIRequest) -> Answer:
    parsed = videos.parse_video(request.body or {})
    files = {"image": parsed.image, "audio": parsed.audio}
    urls = {name: await url_of(call, name, value) for name, value in files.items()}
    submission = submission_of(call, {**parsed.rest, **urls})
    view = await call.plane.commands.submit(call.endpoint, submission, sync=False, caller=call.caller)
    return json_answer(videos.video_object(view))


async def _retrieve(call: Call, job: str) -> Answer:
    answer = json_answer(videos.video_object(await call.plane.queries.status(call.endpoint, job)))
    return Answer(answer.body, more=((b"openai-poll-after-ms", POLL_MS),))


async def _list(call: Call) -> Answer:
    limit, after = videos.parse_listing(call.query_params)
    before = None if after is None else await call.plane.queries.cursor_of(call.endpoint, after)
    page = await call.plane.queries.requests(call.endpoint, Listing(limit=limit, before=before))
    return json_answer(videos.video_list(page))


async def delete(call: Call, job: str) -> Answer:
    """Deletes a video, made or not. Raises ControlError."""
    await request_of(call)
    if not serves(call.endpoint):
        raise NotFound(f"DELETE {videos.ROUTE}/{job[:100]} is not served by {call.endpoint.id}")
    await call.plane.commands.delete(call.endpoint, job)
    return json_answer({"id": job, "object": "video.deleted", "deleted": True})


async def _content(call: Call, job: str) -> Answer:
    query = parse_qs(call.scope["query_string"].decode("latin-1"))
    if (variant := query.get("variant", ["video"])[-1]) != "video":
        raise BadRequest(f"variant must be video; got {variant[:100]!r}")
    view = await call.plane.queries.status(call.endpoint, job)
    if view.state is not JobState.COMPLETED or view.output is None:
        raise NotFound(f"video {job} has no content: its job is {view.state}")
    url = str(from_json(view.output)["video_url"])
    return Answer(to_json({"url": url}), 302, ((b"location", url.encode()),))
