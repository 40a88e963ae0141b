"""The routes of the official OpenAI clients: `/v2/{endpoint}/openai/...`, and `/openai/...` of all endpoints.

    queue endpoint      any path    ─> `own`
    image model         /v1/images  ─> `images`        hosted video model  /v1/videos  ─> `videos`
    any model           /v1/models  ─> the model
    load-balancing endpoint, at `/openai`: any path  ─> `to_workers`

An image model is a hosted one, or an endpoint whose schema has the inputs of one and refuses others.

At `/openai`, the `model` of a body names the endpoint (`control.http.openai.requests`), and a video that was
made is found by its id. `GET /openai/v1/models` lists the endpoints that the key may call.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from pydantic_core import from_json, to_json
from starlette.responses import Response

from stoker.control.errors import NotFound
from stoker.control.http.calls.answers import Answer, json_answer
from stoker.control.http.calls.calls import Call
from stoker.control.http.calls.jobs import PREFIX
from stoker.control.http.calls.openai import images, own, videos
from stoker.control.http.calls.openai.sent import body_of, media_type_of, request_in, request_of
from stoker.control.http.calls.openai.to_workers import to_workers
from stoker.control.http.calls.route import OperationRoute
from stoker.control.http.openai import answers
from stoker.control.http.openai.requests import MODELS, at_endpoint, model_object
from stoker.control.http.openai.videos import ROUTE as VIDEOS
from stoker.control.rules.types import LOAD_BALANCER, Endpoint


class OpenAIRoute(OperationRoute):
    writes = True
    held = True

    def shaped(self, refusal: Answer) -> Answer:
        """Returns a refusal in the shape of the OpenAI API."""
        message = str(from_json(refusal.body)["error"])
        return replace(refusal, body=to_json(answers.error_body(refusal.status, message)))


class SharedRoute(OpenAIRoute):
    """A route at the base URL of all endpoints: what was sent names the endpoint."""

    async def _admit(self, call: Call) -> None:
        call.caller = await call.plane.callers.find(call.header(b"authorization"))
        named = await (_by_model(call) if call.method == "POST" else _by_path(call))
        call.path_params["endpoint_id"] = named
        if call.passed is None:
            await super()._admit(call)
        else:  # the gateway admits it
            call.endpoint = call.plane.endpoints.find(call.caller.account, named, of_queue=False)


class ListRoute(OpenAIRoute):
    """A route of no endpoint."""

    held = False

    async def _admit(self, call: Call) -> None:
        call.caller = await call.plane.callers.find(call.header(b"authorization"))


async def _by_model(call: Call) -> str:
    """Returns the endpoint that the model of the body names. Raises ControlError."""
    body = await body_of(call)
    sent = await request_in(call, body)
    endpoint, call.sent = at_endpoint(sent)
    found, gateway = call.plane.endpoints.named(endpoint), call.shared.of_workers
    if found is not None and found.type == LOAD_BALANCER and gateway is not None:
        given, call.sent = call.sent, None
        call.passed = to_workers(gateway, found.id, sent, given, body, media_type_of(call))
    return endpoint


async def _by_path(call: Call) -> str:
    """Returns the endpoint of the videos or the video that the path names. Raises ControlError."""
    if call.method == "DELETE":
        return await videos.endpoint_of(call, call.job)
    match call.job.removeprefix(VIDEOS).split("/") if videos.is_at(call.job) else None:
        case [""]:
            return videos.endpoint_of_list(call)
        case ["", job, *_]:
            return await videos.endpoint_of(call, job)
    raise NotFound(
        f"{call.method} {call.job} is of no endpoint at /openai; an endpoint has a base URL of its own, too:"
        " /v2/{endpoint}/openai/v1"
    )


router = APIRouter(prefix=PREFIX, route_class=OpenAIRoute, include_in_schema=False)
shared = APIRouter(route_class=SharedRoute, include_in_schema=False)
lists = APIRouter(route_class=ListRoute, include_in_schema=False)


@lists.get(f"/openai{MODELS}")
async def models(call: Call) -> Answer:
    """Lists the endpoints that the key may call, as models."""
    found = sorted(_callable(call), key=lambda one: one.id)
    return json_answer({"object": "list", "data": [model_object(one) for one in found]})


@lists.get(f"/openai{MODELS}/{{job_id}}")
async def model(call: Call) -> Answer:
    """Returns an endpoint as a model; an alias will do."""
    found = call.plane.endpoints.named(call.job)
    if found is None or found.id not in {one.id for one in _callable(call)}:
        raise NotFound(f"no model {call.job[:100]!r} that this key may call; GET /openai{MODELS} lists them")
    return json_answer(model_object(found))


def _callable(call: Call) -> list[Endpoint]:
    """Returns the endpoints that the caller may call."""
    every, caller = call.plane.endpoints.by_id.values(), call.caller
    own_ = [one for one in every if one.account == caller.account]
    return [one for one in own_ if caller.access.may(write=True, endpoint=one.rights)]


@shared.get("/openai{job_id:path}")
@shared.post("/openai{job_id:path}")
@router.get("/openai{job_id:path}")
@router.post("/openai{job_id:path}")
async def openai(call: Call) -> Response:
    """Answers a request of an OpenAI client."""
    if call.passed is not None:
        return call.passed
    if not _is_model(call.endpoint):
        return await own.answer(call, await request_of(call))
    if videos.serves(call.endpoint) and videos.is_at(call.job):
        return await videos.answer(call, await request_of(call))
    if call.job != MODELS:
        return await images.answer(call, await request_of(call))
    await request_of(call)
    return json_answer({"object": "list", "data": [model_object(call.endpoint)]})


def _is_model(endpoint: Endpoint) -> bool:
    """Returns whether the endpoint's jobs have inputs of their own: none may hold a route and a body."""
    schema = endpoint.run.schema or {}
    is_closed = schema.get("additionalProperties") is False
    return endpoint.hosted or (is_closed and "openai_route" not in schema.get("properties", {}))


@shared.delete(f"/openai{VIDEOS}/{{job_id}}")
@router.delete(f"/openai{VIDEOS}/{{job_id}}")
async def delete_video(call: Call) -> Answer:
    """Deletes a video."""
    return await videos.delete(call, call.job)


ROUTES = [*router.routes, *lists.routes, *shared.routes]
