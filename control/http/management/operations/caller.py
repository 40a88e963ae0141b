"""Finds the caller by its key, once for each request. Operations declare a parameter `By` to get it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request

from stoker.control.plane import Plane
from stoker.control.resources import ManagedResources
from stoker.control.rules.access import Caller

_BEARER = HTTPBearer(
    auto_error=False,
    description="An API key; the bare key will do.",
    scheme_name="ApiKey",
    bearerFormat="Bearer",
)

READING = ("GET", "HEAD", "OPTIONS")
"""The methods that change nothing."""


async def known(request: Request) -> Caller:
    """Raises Unauthorized where there is no key, or a wrong one."""
    plane: Plane = request.state.plane
    return await plane.callers.find(request.headers.get("authorization"))


async def _caller(request: Request, _: Annotated[object, Security(_BEARER)]) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _management(request: Request) -> ManagedResources:
    plane: Plane = request.state.plane
    return plane.management


async def _plane(request: Request) -> Plane:
    plane: Plane = request.state.plane
    return plane


By = Annotated[Caller, Depends(_caller)]
Managed = Annotated[ManagedResources, Depends(_management)]
ThePlane = Annotated[Plane, Depends(_plane)]
