"""Who asks: the dependency that every operation of the management API begins with."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request

from stoker.control.access import Caller
from stoker.control.errors import Unauthorized
from stoker.control.management import Management
from stoker.control.plane import Plane

_BEARER = HTTPBearer(auto_error=False, description="An API key; the bare key will do.")


async def _known(request: Request, _: Annotated[object, Security(_BEARER)]) -> Caller:
    """Raises Unauthorized where there is no key, a wrong one, or one that may not do this."""
    given = (request.headers.get("authorization") or "").strip()
    token = given[7:].strip() if given[:7].lower() == "bearer " else given
    if not token or token.lower() == "bearer":
        raise Unauthorized("no token provided")
    plane: Plane = request.app.state.plane
    account = await plane.find_key(token)
    if account is None:
        raise Unauthorized("invalid api key")
    return Caller(account)


def _management(request: Request) -> Management:
    plane: Plane = request.app.state.plane
    return plane.management


By = Annotated[Caller, Depends(_known)]
Managed = Annotated[Management, Depends(_management)]
