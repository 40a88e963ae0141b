"""`GET /metrics`, for Prometheus: with a key that may read in management, as it names endpoints and nodes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stoker.control.errors import ControlError, Unauthorized
from stoker.control.http.health.probes import json_answer
from stoker.control.metrics.scrape import CONTENT_TYPE
from stoker.control.plane import Plane


def metrics(plane: Plane) -> APIRouter:
    """Returns the route."""
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def scrape(request: Request) -> Response:
        try:
            caller = await plane.callers.find(request.headers.get("authorization"))
            if not caller.access.may(write=False):
                raise Unauthorized("this key may not read in management, which /metrics belongs to")
            text = await plane.scrapes.text()
        except ControlError as error:
            return json_answer(error.status, {"error": str(error)})
        return Response(text, headers={"Cache-Control": "no-store"}, media_type=CONTENT_TYPE)

    return router
