"""Handles unknown fields and query parameters: ignores them and lists them in the answer, or refuses them if
the caller requests that.

    Prefer: handling=strict ──> 400: "dockerArgs is not a known field"
    otherwise               ──> ignored, and    Stoker-Ignored: dockerArgs, limits.disk, ?page

Public clients also send names of other interfaces. Stoker's own client and commands request strict handling,
because a misspelt filter that is ignored would show what it should hide. A body that forbids unknown names
refuses them for all callers: a key with a misspelt right must not be valid for everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Message, Scope, Send

from stoker.control.errors import BadRequest
from stoker.control.http.calls.ignored import HEADER, header_value, refusal, strict
from stoker.control.rules.submissions import abbreviated

log = logging.getLogger(__name__)

NOT_ACTED_ON = {
    "PodCreateInput": {
        "compliance": "",
        "countryCode": "countryCodes is accepted",
        "dataCenterId": "use dataCenterIds",
        "dockerArgs": "use dockerStartCmd",
        "gpuTypeId": "use gpuTypeIds",
        "startJupyter": "",
        "startSsh": "",
        "stopAfter": "",
        "terminateAfter": "",
    },
    "PodUpdateInput": {"dockerArgs": "use dockerStartCmd"},
    "EndpointCreateInput": {
        "flashBootType": "use flashboot",
        "gpuIds": "use gpuTypeIds",
        "hubReleaseId": "",
        "locations": "use dataCenterIds",
        "modelReferences": "use weights of the template that templateId names",
        "template": "use templateId",
        "workersPFBTarget": "",
        "workersStandby": "",
    },
    "TemplateCreateInput": {"dockerArgs": "use dockerStartCmd", "portsConfig": "use ports"},
}
"""Names that RunPod clients send, by body. They are ignored like other unknown names; the document says
so."""


async def note_unknown(request: Request) -> None:
    """Notes the names in a request that its operation does not know. Raises BadRequest if they must be
    refused."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {name for parameter in route.dependant.query_params for name in _names(parameter)}
    parameters = [name for name in request.query_params if name not in known]
    fields: list[str] = []
    if route.dependant.body_params and await request.body():
        fields = list(
            unknown_fields(await request.json(), route.dependant.body_params[0].field_info.annotation)
        )
    if not parameters and not fields:
        return
    if strict(request.headers.getlist("prefer")):
        raise BadRequest(_refusal(parameters, fields, known))
    request.state.ignored = ignored = header_value([*fields, *(f"?{name}" for name in parameters)])
    log.debug("%s %s: ignored %s", request.method, request.url.path, ignored)


def not_acted_on(body: str) -> str:
    """Returns the document's text about names that a body may contain without effect."""
    names = [
        f"`{name}`" + (f" ({instead})" if instead else "") for name, instead in NOT_ACTED_ON[body].items()
    ]
    return f"Of no meaning here, and ignored: {', '.join(names)}."


def _refusal(parameters: list[str], fields: list[str], known: Iterable[str]) -> str:
    if fields:
        return refusal(fields)
    allowed = ", ".join(sorted(known)) or "none"
    return f"{abbreviated(parameters[0])} is not a known query parameter; allowed: {allowed}"


def _names(parameter: Any) -> Iterable[str]:
    """Returns the names of a parameter, which are several if it is a model."""
    taken = parameter.field_info.annotation
    if isinstance(taken, type) and issubclass(taken, BaseModel):
        return taken.model_fields
    return (parameter.alias,)


def unknown_fields(body: Any, shape: Any, where: str = "") -> Iterator[str]:
    """Yields unknown fields as paths such as `limits.disk`, but none of models that forbid them."""
    model = _model(shape)
    if model is None or not isinstance(body, dict):
        return
    for name, value in body.items():
        if name in model.model_fields:
            yield from unknown_fields(value, model.model_fields[name].annotation, f"{where}{name}.")
        elif model.model_config.get("extra") != "forbid":
            yield f"{where}{name}"


def _model(shape: Any) -> type[BaseModel] | None:
    """Returns the model of a field, also if the field may be null."""
    choices = (shape, *get_args(shape))
    return next((one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)), None)


def with_ignored_header(scope: Scope, send: Send) -> Send:
    """Returns a `send` that adds the header if something was ignored, also to an error about something
    else."""

    async def send_with_header(message: Message) -> None:
        ignored = scope.get("state", {}).get("ignored")
        if ignored and message["type"] == "http.response.start":
            headers = [*message["headers"], (HEADER, ignored.encode("ascii"))]
            message = {**message, "headers": headers}
        await send(message)

    return send_with_header
