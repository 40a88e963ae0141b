"""Who asks: the key is looked at once, before anything else is; operations take what was found as `By`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request

from stoker.control.access import Caller
from stoker.control.errors import Unauthorized
from stoker.control.management import Management
from stoker.control.plane import Plane

_BEARER = HTTPBearer(auto_error=False, description="An API key; the bare key will do.", scheme_name="key")

READING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


async def known(request: Request) -> Caller:
    """Raises Unauthorized where there is no key, a wrong one, or one that may not do this."""
    given = (request.headers.get("authorization") or "").strip()
    token = given[7:].strip() if given[:7].lower() == "bearer " else given
    if not token or token.lower() == "bearer":
        raise Unauthorized("no token provided")
    plane: Plane = request.state.plane
    caller = await plane.find_caller(token)
    if caller is None:
        raise Unauthorized("invalid api key")
    return caller


async def _caller(request: Request, _: Annotated[object, Security(_BEARER)]) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _management(request: Request) -> Management:
    plane: Plane = request.state.plane
    return plane.management


By = Annotated[Caller, Depends(_caller)]
Managed = Annotated[Management, Depends(_management)]
