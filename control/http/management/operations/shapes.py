"""Shapes that all kinds of resources share over HTTP: bases of bodies, ids in paths, documented errors.

Fields have strict types: text instead of a number is refused. `unknown` handles unknown fields. Limits are
those of the published document, and our own only where larger values would break something: numbers of
workers, and sizes, which bills multiply. Field names are those of the interface. Values that are not known
are left out of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema
from starlette.responses import Response

from stoker.control.errors import BadRequest
from stoker.control.resources.endpoint_fields import ARGUMENT_MOST, ENV_NAME

Name = Annotated[str, Field(max_length=191)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Argument = Annotated[str, Field(max_length=ARGUMENT_MOST)]


Limit = Annotated[
    int | None, Query(ge=1, le=1000, description="How many the answer may hold; all by default.")
]
After = Annotated[
    str | None, Query(max_length=191, description="The id of the last one that was seen: what follows it.")
]


class _Listed(Protocol):
    @property
    def id(self) -> str: ...


_L = TypeVar("_L", bound=_Listed)


def page_of(listed: Sequence[_L], after: str | None, limit: int | None) -> Sequence[_L]:
    """Returns the page of a list that is in memory. Raises BadRequest where `after` is in it no more."""
    first = 0
    if after is not None:
        ids = [one.id for one in listed]
        if after not in ids:
            raise BadRequest(f"after must be an id in this list; got {after[:100]!r}: begin again without it")
        first = ids.index(after) + 1
    return listed[first : None if limit is None else first + limit]


Cuda = Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$", examples=["12.8"])]
PORT = "[1-9][0-9]{0,5}/(http|tcp|udp)"
Port = Annotated[str, Field(pattern=f"^{PORT}$", examples=["8888/http"])]


def rfc3339(at: float) -> str:
    """Returns a time in seconds since the epoch such as 2026-11-22T08:00:00.000Z."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def id_in_path(what: str) -> Any:
    """Declares an id in the path: `templateId: Annotated[str, id_in_path("template")]`."""
    return Path(description=f"The {what}'s id.")


class RequestBody(BaseModel):
    """The body of a request. `unknown` finds the fields that it ignores."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Changes(RequestBody):
    """The body of a change. What is left out stays as it is, so the document shows no defaults."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        for field in handler.resolve_ref_schema(schema)["properties"].values():
            field.pop("default", None)
        return schema


Bound = Annotated[int, Field(ge=1, le=1 << 31)]


class QuotaBody(BaseModel):
    """The most that a key or an endpoint may use; 429 for more. What is left out is not bounded."""

    model_config = ConfigDict(
        title="Quota", extra="forbid", strict=True, json_schema_extra={"examples": [{"jobsWaiting": 100}]}
    )

    jobsWaiting: Annotated[Bound | None, Field(description="Jobs in the queue at once.")] = None
    gpuSecondsPerDay: Annotated[
        Bound | None, Field(description="Seconds of execution times GPUs, in a day of UTC.")
    ] = None
    fileBytes: Annotated[
        Annotated[int, Field(ge=1, le=1 << 50)] | None, Field(description="Bytes of `/files` that are kept.")
    ] = None


class ResponseBody(BaseModel):
    """The body of an answer. Use `response_model_exclude_none` to leave out what is not known."""

    model_config = ConfigDict(extra="forbid")


class Refused(BaseModel):
    """The reason why nothing was done. `error` and `message` are the same; clients read one or the other."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": "name is required and missing",
                    "message": "name is required and missing",
                    "status": 400,
                }
            ]
        }
    )

    error: str
    message: str
    status: int


_REFUSALS = {
    400: "The body, an id, or a parameter cannot be accepted; the message names the field.",
    401: "No key, a wrong one, or one without the right to this.",
    404: "There is nothing under this id.",
    405: "Not with this method.",
    413: "The body is larger than 1 MiB.",
    415: "The body is compressed, and not with gzip.",
    503: "The store is full or down: nothing was changed; try again.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the errors of an operation, for `responses=`; 401 and 503 are always possible."""
    possible = sorted({401, 503, *statuses})
    return {status: {"model": Refused, "description": _REFUSALS[status]} for status in possible}


LISTS = refusals(400)
"""The errors of a list."""

READS = refusals(400, 404)
CREATES = refusals(400, 413, 415)
CHANGES = refusals(400, 404, 413, 415)
DELETES: dict[str, Any] = {"status_code": 204, "response_class": Response, "responses": refusals(400, 404)}
"""For an operation whose answer is empty and has no media type: clients parse whatever is called JSON."""
