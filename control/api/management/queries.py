"""What may stand behind the question mark: each operation's own parameters, and nothing else.

A filter that is spelt wrongly and left alone would show what it was meant to hide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request

from stoker.control.errors import BadRequest
from stoker.control.submissions import shown


async def no_others(request: Request) -> None:
    """Raises BadRequest for a parameter that the operation does not know."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {name for parameter in route.dependant.query_params for name in _names(parameter)}
    for name in request.query_params:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise BadRequest(f"{shown(name)} is not a known query parameter; allowed: {allowed}")


def _names(parameter: Any) -> Iterable[str]:
    """Several, where an operation takes them as one model."""
    taken = parameter.field_info.annotation
    if isinstance(taken, type) and issubclass(taken, BaseModel):
        return taken.model_fields
    return (parameter.alias,)
