"""The routes of the probes. Neither needs a key.

/healthz   200 as long as control's loop answers: a supervisor starts control again where it does not
/ready     200, or 503 with what fails: a load balancer sends callers elsewhere meanwhile
"""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Response

from stoker.control.http.health.checks import Readiness
from stoker.control.http.health.readiness import answer


def probes(readiness: Readiness) -> APIRouter:
    """Returns the routes."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz() -> Response:
        return json_answer(200, {"status": "ok"})

    @router.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> Response:
        return json_answer(*answer(*await readiness.look()))

    return router


def json_answer(status: int, body: dict[str, object]) -> Response:
    """Returns an answer that no cache keeps."""
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(body), status, headers, media_type="application/json")
