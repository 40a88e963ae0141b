"""/v1/endpoints/{endpointId}/…: an endpoint as it is now: its counts, times, workers, and their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from stoker.control.auth.while_valid import while_valid
from stoker.control.errors import Unauthorized
from stoker.control.http.calls.event_stream import EventAnswer, parse_event_id, render_log
from stoker.control.http.calls.parameters import LastEvent
from stoker.control.http.calls.settings import KEEPALIVE_S
from stoker.control.http.calls.shapes import Health, WorkerLog
from stoker.control.http.management.operations.caller import By, Managed, ThePlane
from stoker.control.http.management.operations.endpoints import EndpointId, counted
from stoker.control.http.management.operations.pod_answers import PodResponse, WorkerStatus, worker_response
from stoker.control.http.management.operations.shapes import (
    READS,
    After,
    Limit,
    ResponseBody,
    id_in_path,
    page_of,
    refusals,
)
from stoker.control.jobs import records
from stoker.control.jobs.records import Record
from stoker.control.jobs.worker_logs import LINES_MOST
from stoker.control.metrics.recent import Quantiles, Recent
from stoker.control.resources.endpoint_workers import EndpointWorker
from stoker.control.rules.access import Caller
from stoker.control.rules.billing import NANO

READY = ("RUNNING", "IDLE")

router = APIRouter(prefix="/endpoints", tags=["endpoints"])


@router.get("/{endpointId}/health", responses=READS, response_model=Health)
async def get_endpoint_health(by: By, plane: ThePlane, endpointId: EndpointId) -> Record:
    """Returns the counts of an endpoint's jobs, or of a load-balancing endpoint's requests, and of its
    workers. A key that may look at the endpoint may call this, too."""
    return await counted(plane, plane.endpoints.find(by.account, endpointId, of_queue=False))


# ---- times ----------------------------------------------------------------------------------------


class QuantilesResponse(ResponseBody):
    model_config = ConfigDict(title="Quantiles", json_schema_extra={"examples": [{"p50": 210, "p95": 900}]})

    p50: Annotated[int, Field(description="Milliseconds, which half of the jobs do not exceed.")]
    p95: Annotated[int, Field(description="Milliseconds, which 95 % of the jobs do not exceed.")]


class VersionResponse(ResponseBody):
    """The workers of one version of an endpoint. While a version rolls out, there are two."""

    model_config = ConfigDict(
        title="VersionWorkers", json_schema_extra={"examples": [{"version": 2, "ready": 1, "others": 0}]}
    )

    version: int
    ready: int
    others: Annotated[int, Field(description="Those that start, are throttled, are unhealthy, or end.")]


class StatisticsResponse(ResponseBody):
    """The ends of an endpoint's last jobs: those of the last hour, at most 200, and none from before control
    was started."""

    model_config = ConfigDict(
        title="EndpointStatistics",
        json_schema_extra={
            "examples": [
                {
                    "queueAgeMs": 1200,
                    "costPerHr": 3.59,
                    "since": "2026-01-05T08:00:00Z",
                    "jobs": 180,
                    "failed": 1,
                    "perMinute": 3.0,
                    "delayMs": {"p50": 210, "p95": 900},
                    "executionMs": {"p50": 4100, "p95": 4800},
                    "versions": [{"version": 2, "ready": 1, "others": 0}],
                }
            ]
        },
    )

    queueAgeMs: Annotated[
        int | None, Field(description="How long the job waits that waits longest; absent where none waits.")
    ] = None
    costPerHr: Annotated[
        float | None, Field(description="US dollars, of all its workers; absent without a price.")
    ] = None
    since: datetime
    jobs: int
    failed: Annotated[int, Field(description="FAILED or TIMED_OUT.")]
    perMinute: float
    delayMs: Annotated[QuantilesResponse | None, Field(description="How long they waited.")] = None
    executionMs: Annotated[QuantilesResponse | None, Field(description="How long their handler ran.")] = None
    versions: Annotated[list[VersionResponse], Field(description="Those that have workers.")]


@router.get("/{endpointId}/statistics", responses=READS, response_model_exclude_none=True)
async def get_endpoint_statistics(
    by: By, managed: Managed, plane: ThePlane, endpointId: EndpointId
) -> StatisticsResponse:
    """Returns how long an endpoint's jobs waited and ran lately, how old its queue is, and what its workers
    cost. A key that may look at the endpoint may call this, too."""
    endpoint = plane.endpoints.find(by.account, endpointId, of_queue=False)
    age = await plane.queries.queue_age(endpoint)
    workers = managed.endpoints.workers(endpoint)
    cost = managed.billing.workers_hour(workers, endpoint)
    return _statistics(plane.counters.recent.of(endpoint.id), age, cost, workers)


def _statistics(
    recent: Recent, age_s: float | None, nano_usd: int | None, workers: Sequence[EndpointWorker]
) -> StatisticsResponse:
    counts = Counter((one.version, one.status in READY) for one in workers)
    return StatisticsResponse(
        queueAgeMs=None if age_s is None else round(1000 * age_s),
        costPerHr=None if nano_usd is None else nano_usd / NANO,
        since=datetime.fromtimestamp(recent.since, UTC),
        jobs=recent.jobs,
        failed=recent.failed,
        perMinute=round(recent.per_minute, 3),
        delayMs=_quantiles(recent.delay),
        executionMs=_quantiles(recent.execution),
        versions=[
            VersionResponse(version=n, ready=counts[n, True], others=counts[n, False])
            for n in sorted({version for version, _ in counts})
        ],
    )


def _quantiles(found: Quantiles | None) -> QuantilesResponse | None:
    return None if found is None else QuantilesResponse(p50=found.p50, p95=found.p95)


# ---- workers --------------------------------------------------------------------------------------


@router.get("/{endpointId}/workers", responses=READS, response_model_exclude_none=True)
async def list_endpoint_workers(
    by: By,
    managed: Managed,
    endpointId: EndpointId,
    status: Annotated[WorkerStatus | None, Query()] = None,
    machineId: Annotated[str | None, Query(max_length=191, description="The id of a node.")] = None,
    limit: Limit = None,
    after: After = None,
) -> list[PodResponse]:
    """Lists an endpoint's workers as pods, the oldest first, and then a throttled one for each that has no
    node. With `limit`, a page that has fewer is the last."""
    endpoint = managed.endpoints.get(by.account, endpointId)
    found = [
        one
        for one in managed.endpoints.workers(endpoint)
        if status in (None, one.status) and machineId in (None, one.node)
    ]
    return [worker_response(managed, one, endpoint) for one in page_of(found, after, limit)]


_EVENT = 'event: log\nid: 0-17\ndata: {"line":"listening on port 8000","printedAt":1764292474018}\n\n'
_EVENTS = {"text/event-stream": {"schema": {"type": "string", "examples": [_EVENT]}}}
_OF_LOG: dict[int | str, dict[str, Any]] = {**refusals(400, 404), 200: {"content": _EVENTS}}


@router.get("/{endpointId}/workers/{workerId}/logs", responses=_OF_LOG, response_model=WorkerLog)
async def get_worker_logs(
    by: By,
    plane: ThePlane,
    request: Request,
    endpointId: EndpointId,
    workerId: Annotated[str, id_in_path("worker")],
    follow: Annotated[bool, Query(description="Lines as they are printed, as events.")] = False,
    last: LastEvent = None,
) -> Response | Record:
    """Returns the last lines, at most 100, that a worker of any kind of endpoint printed through all of its
    processes. With `follow=true`, or with `Accept: text/event-stream`, the answer is a stream of events log,
    skipped and end: what its node remembers first, then lines as they are printed, until the worker is gone;
    `Last-Event-ID` takes it up where it broke off. A key that may look at the endpoint may call this, too."""
    endpoint = plane.endpoints.find(by.account, endpointId, of_queue=False)

    def may(caller: Caller) -> bool:
        return caller.access.may(write=False, endpoint=endpoint.rights)

    if not may(by):
        raise Unauthorized(f"this key may not look at endpoint {endpoint.id}, nor at what its workers print")
    after = parse_event_id(last) if last else None
    lines = (await plane.worker_logs.last(endpoint, workerId))[-LINES_MOST:]
    if not follow and "text/event-stream" not in request.headers.get("accept", ""):
        return records.worker_log(workerId, lines)
    events = plane.worker_logs.follow(endpoint, workerId, after)
    valid = partial(while_valid, plane.callers, request.headers.get("authorization"), may)
    return EventAnswer(events, KEEPALIVE_S, render_log, valid)
