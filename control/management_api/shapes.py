"""What all kinds of resource share over HTTP: how bodies are read, how ids look, how refusals are told.

Bodies are strict: a field that is not known is refused, and so is text where a number belongs. Field names
are those of the interface. What is unknown is left out of an answer.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

ID = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""Of whatever a path names; anything else is refused before it is looked for."""

Name = Annotated[str, Field(min_length=1, max_length=191)]
Id = Annotated[str, Field(pattern=ID, max_length=63)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
Argument = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]


def id_in_path(what: str) -> Any:
    """`templateId: Annotated[str, id_in_path("template")]`: the last part of a path."""
    return Path(description=f"The {what}'s id.", pattern=ID, max_length=63)


class Asked(BaseModel):
    """A body that is asked with."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Told(BaseModel):
    """A body that is answered with. Use `response_model_exclude_none`: what is unknown is absent."""

    model_config = ConfigDict(extra="forbid")


class Refused(BaseModel):
    """Why nothing was done, in a sentence. All fields say the same; clients differ in where they look."""

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
    400: "The body, an id, or a parameter cannot be accepted; the sentence names the field.",
    401: "No key, a wrong one, or one without the right to this.",
    404: "There is nothing under this id.",
    405: "Not with this method.",
    413: "The body is larger than 1 MiB.",
    503: "The store is full or down: nothing was changed; try again.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of an operation; 401 and 503 may always happen."""
    told = sorted({401, 503, *statuses})
    return {status: {"model": Refused, "description": _REFUSALS[status]} for status in told}


LISTS = refusals(400)
"""Refusals of a list."""

READS = refusals(400, 404)
CREATES = refusals(400, 413)
CHANGES = refusals(400, 404, 413)
DELETES = refusals(400)
