"""Logs of pods and workers as server-sent events of management v2: what is remembered, and then new lines.

    id: 2026-11-22T08:00:00.123000000Z/17
    data: {"source":"container","line":"listening","ts":"2026-11-22T08:00:00.123000000Z"}

A stream whose worker is gone stays open, and silent but for comments: clients would come back at once. There
are only lines of containers here; a worker's `reason` says what the platform did.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Query
from pydantic import AwareDatetime, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from stoker.control.auth.while_valid import while_valid
from stoker.control.errors import Forbidden, NotFound, Unprocessable
from stoker.control.http.calls.event_stream import EventAnswer
from stoker.control.http.calls.settings import KEEPALIVE_S
from stoker.control.http.management.operations.caller import By, ThePlane
from stoker.control.http.management.v2.pods import PodId
from stoker.control.http.management.v2.serverless import EndpointId
from stoker.control.http.management.v2.shapes import Unquoted, id_in_path, refusals
from stoker.control.plane import Plane
from stoker.control.rules.access import Caller
from stoker.control.rules.streams import LogEvent, LogLine
from stoker.control.rules.submissions import abbreviated
from stoker.control.rules.types import Endpoint

router = APIRouter(tags=["logs"])


class LogQuery(BaseModel):
    """The beginning of the stream: after Last-Event-ID, else at `since`, else with the last `tail` lines."""

    source: Annotated[
        Literal["container", "system"] | None,
        Field(description="Without it, both; only container has lines here."),
    ] = None
    tail: Annotated[int, Field(ge=0, le=5000)] = 100
    since: AwareDatetime | None = None


LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
_EVENTS: dict[int | str, Any] = {
    **refusals(404, 422),
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
}


def first_line(lines: Sequence[LogLine], last_event: str | None, query: LogQuery) -> int:
    """Returns the number of the line after which the stream begins; -1 for all. Raises Unprocessable."""
    if last_event:
        number = last_event.rpartition("/")[2]
        if not (number.isascii() and number.isdecimal()):
            raise Unprocessable(f"Last-Event-ID must be an event's id; got {abbreviated(last_event)}")
        return int(number[:18])
    if query.since is not None:
        return -1
    left = len(lines) - query.tail
    if left <= 0:
        return -1
    return lines[left - 1].n


def frame(event: LogEvent) -> bytes:
    at_ms = event.at_ms or 0
    at = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    ts = f"{at}.{at_ms % 1000:03}000000Z"
    data = orjson.dumps({"source": "container", "line": event.line, "ts": ts})
    return f"id: {ts}/{event.n}\n".encode() + b"data: " + data + b"\n\n"


@router.get("/serverless/{endpointId}/workers/{workerId}/logs", responses=_EVENTS, response_class=Response)
async def stream_worker_log(
    by: By,
    plane: ThePlane,
    request: Request,
    endpointId: EndpointId,
    workerId: Annotated[str, id_in_path("worker"), Unquoted],
    query: Annotated[LogQuery, Query()],
    last: LastEventId = None,
) -> Response:
    """Streams what a worker printed, through all of its processes, and what it prints."""
    endpoint = plane.endpoints.find(by.account, endpointId, of_queue=False)
    return await _stream(plane, request, endpoint, workerId, query, last)


@router.get("/pods/{podId}/logs", responses=_EVENTS, response_class=Response)
async def stream_pod_log(
    by: By,
    plane: ThePlane,
    request: Request,
    podId: PodId,
    query: Annotated[LogQuery, Query()],
    last: LastEventId = None,
) -> Response:
    """Streams what a pod printed and prints, or an endpoint's worker of this id."""
    placed = plane.cluster.workers.get(podId)
    if placed is not None and placed.endpoint in plane.endpoints.by_id:
        endpoint = plane.endpoints.find(by.account, placed.endpoint, of_queue=False)
        return await _stream(plane, request, endpoint, podId, query, last)
    try:
        found = await plane.management.pods.get(by.account, podId)
    except NotFound:
        raise NotFound(f"no pod and no worker {podId!r}: the id is wrong, or it is gone") from None
    logs, node = plane.worker_logs, found.pod.node
    lines = await logs.last_of_pod(podId, node) if node else ()
    events = logs.follow_pod(podId, node, (0, first_line(lines, last, query)))
    valid = partial(while_valid, plane.callers, request.headers.get("authorization"), _may_look)
    return EventAnswer(_chosen(plane, events, query), KEEPALIVE_S, frame, valid)


def _may_look(caller: Caller) -> bool:
    return caller.access.may(write=False)


async def _stream(
    plane: Plane, request: Request, endpoint: Endpoint, worker: str, query: LogQuery, last: str | None
) -> Response:
    def may(caller: Caller) -> bool:
        return caller.access.may(write=False, endpoint=endpoint.rights) or caller.access.may(write=False)

    if not may(request.state.caller):
        raise Forbidden(f"this key may not look at endpoint {endpoint.id}, nor at what its workers print")
    lines = await plane.worker_logs.last(endpoint, worker)
    events = plane.worker_logs.follow(endpoint, worker, (0, first_line(lines, last, query)))
    valid = partial(while_valid, plane.callers, request.headers.get("authorization"), may)
    return EventAnswer(_chosen(plane, events, query), KEEPALIVE_S, frame, valid)


async def _chosen(
    plane: Plane, events: AsyncGenerator[LogEvent, None], query: LogQuery
) -> AsyncGenerator[LogEvent, None]:
    """Yields the lines that are asked for, and then nothing until control is about to end."""
    since_ms = 0 if query.since is None else query.since.timestamp() * 1000
    async with aclosing(events):
        if query.source != "system":
            async for event in events:
                if event.kind == "log" and (event.at_ms is None or event.at_ms >= since_ms):
                    yield event
    await plane.worker_logs.until_stopped()
