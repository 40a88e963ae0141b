"""Shapes that all resources share in management v2: bodies, records, ids in paths, lists, documented errors.

A body's unknown field is refused, and so is text instead of a number. Unknown query parameters are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from stoker.control.http.management.operations.shapes import Argument, EnvName
from stoker.control.http.management.operations.templates import MountPath
from stoker.control.http.management.v2.paging import MOST, page

T = TypeVar("T")

Name = Annotated[str, Field(min_length=1, max_length=191)]
Text = Annotated[str, Field(max_length=191)]
Image = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[^\s]+$",
        description="A container image; of an endpoint's worker also `local:`, as in /v1.",
        examples=["ghcr.io/example/worker:1.2"],
    ),
]
Args = Annotated[
    Argument, Field(description="The command's arguments, quoted as for a shell; empty: the image's own.")
]
Disk = Annotated[int, Field(ge=1, le=1_000_000, description="The container's own, in GB.")]
Env = Annotated[
    dict[EnvName, str],
    Field(description="`{{ STOKER_SECRET_name }}` in a value is filled in when a container starts."),
]
Registry = Annotated[str | None, Field(description="The id of a registry; null: none.")]


class Body(BaseModel):
    """A body that callers send."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PersistentMount(Body):
    size: Annotated[int, Field(ge=10, le=1_000_000, description="In GB.")]
    path: MountPath


class Record(BaseModel):
    """A record that is answered."""

    model_config = ConfigDict(extra="forbid")


class Pagination(Record):
    hasNextPage: bool
    nextCursor: str | None


class PageQuery(BaseModel):
    """The part of a list that is answered."""

    cursor: Annotated[str | None, Field(description="The nextCursor of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = MOST


Page = Annotated[PageQuery, Query()]


def paged(records: Sequence[T], key: Callable[[T], str], query: PageQuery) -> tuple[Sequence[T], Pagination]:
    """Returns the records of the page that is asked for, and what the list says of it. Raises
    Unprocessable."""
    part, cursor = page(records, key, query.cursor, query.limit)
    return part, Pagination(hasNextPage=cursor is not None, nextCursor=cursor)


class Problem(Record):
    """The reason why nothing was done (RFC 9457). `error` and `message` are the same as `detail`: clients
    differ in which of the fields they read."""

    title: str
    status: int
    detail: str
    errors: Annotated[list[str], Field(description="One sentence for each field that is wrong.")]
    error: str
    message: str


def id_in_path(what: str) -> Any:
    """Declares an id in the path. The path is matched as it was sent, so that a slash in an id does not end
    its segment."""
    return Path(description=f"The {what}'s id.")


Unquoted = AfterValidator(unquote)

_REFUSALS = {
    400: "The fields do not go together, or what they ask for is in use, or not there.",
    401: "No key, or a wrong one.",
    403: "The key has no right to this.",
    404: "There is nothing under this id.",
    409: "The resource's state does not allow this.",
    422: "The body has an unknown, missing or wrong field, or names what is of another kind.",
    503: "The store is full or down: nothing was changed; try again.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the errors of an operation, for `responses=`; some are always possible."""
    content: dict[str, Any] = {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }
    possible = sorted({401, 403, 503, *statuses})
    return {status: {"description": _REFUSALS[status], "content": content} for status in possible}


LISTS = refusals(422)
READS = refusals(404)
CREATES: dict[str, Any] = {"status_code": 201, "responses": refusals(400, 404, 422)}
CHANGES = refusals(400, 404, 422)
DELETES: dict[str, Any] = {"status_code": 204, "response_class": Response, "responses": refusals(400, 404)}
