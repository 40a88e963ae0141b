"""The query parameters and headers of operations. Like a submission's fields, nothing is clamped.

FastAPI reads and documents those that an operation's signature declares. The operations that every job calls
read theirs themselves, as each declared one costs some microseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Query
from msgspec import Struct
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from stoker.control.errors import BadRequest
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import (
    DEFAULT_PAGE_SIZE,
    DEFAULT_WAIT_MS,
    KEY_LENGTH,
    PAGE_SIZE,
    STATUS_TTL_MS,
    STREAM_WAIT_MS,
    WAIT_MS,
)
from stoker.control.rules.submissions import Once, abbreviated, wrong

SINCE_MS = (0, 253_402_300_799_999)
CURSOR = (1, 2**63 - 1)
SEED = (0, 2**63 - 1)
STOP_AFTER = (0, 2**31 - 1)
TEXT_MOST = 200
MILLISECONDS = " (milliseconds)"


def whole_number(name: str, text: str, bounds: tuple[int, int], unit: str = "") -> int:
    """Returns a parameter of digits, within bounds. Raises BadRequest."""
    low, high = bounds
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and low <= int(text) <= high):
        raise BadRequest(f"{name} must be an integer from {low} to {high}{unit}; got {abbreviated(text)}")
    return int(text)


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise wrong("status", text, f"one of {', '.join(JobState)}") from None


def once_of(key: str, body: bytes, *, sync: bool) -> Once:
    """Returns the `Idempotency-Key` header, and a digest of the request that must come with the key each
    time."""
    if not 0 < len(key) <= KEY_LENGTH or any(not "!" <= character <= "~" for character in key):
        raise wrong("Idempotency-Key", key, f"1 to {KEY_LENGTH} visible ASCII characters")
    return Once(key, hashlib.sha256((b"sync\n" if sync else b"async\n") + body).digest())


# -- as operations declare them


class Parameter(Struct, frozen=True):
    """A parameter that `read` reads, whose BadRequest refuses it, and that the document describes."""

    read: Callable[[str], Any]
    about: str
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**self.schema, "description": self.about}

    def _checked(self, text: str) -> Any:
        try:
            return self.read(text)
        except BadRequest as error:
            raise ValueError(str(error)) from None


def number(name: str, about: str, bounds: tuple[int, int], unit: str = "", **more: Any) -> Parameter:
    """Returns a parameter of digits, within bounds; `more` is what its schema has, too."""
    schema = {"type": "integer", "minimum": bounds[0], "maximum": bounds[1], **more}
    return Parameter(lambda text: whole_number(name, text, bounds, unit), about, schema)


def flag(name: str, about: str) -> Parameter:
    """Returns a parameter that is true or false."""

    def read(typed: str) -> bool:
        if typed not in ("true", "false"):
            raise wrong(name, typed, "true or false")
        return typed == "true"

    return Parameter(read, about, {"type": "boolean", "default": False})


def text(name: str, about: str) -> Parameter:
    """Returns a parameter of 1 to TEXT_MOST characters."""

    def read(typed: str) -> str:
        if not 0 < len(typed) <= TEXT_MOST or "\0" in typed:
            raise wrong(name, typed, f"1 to {TEXT_MOST} characters")
        return typed

    return Parameter(read, about, {"type": "string", "minLength": 1, "maxLength": TEXT_MOST})


def wait(default_ms: int) -> Parameter:
    held = "How long the answer may be held, in milliseconds."
    return number("wait", held, WAIT_MS, MILLISECONDS, default=default_ms)


_LESS = "The record and the job end this many milliseconds from now, if that is earlier than before."
_SINCE = "Only jobs submitted at or after this time."
_UNTIL = "Only jobs submitted at or before this time."
_ERROR = "Only jobs that did not complete, and whose error or reason has this text; case does not matter."
_WORKER = "Only jobs that this worker ran last."
_NODE = "Only jobs whose last worker was on the node of this id."
_STOP = "Stop the handler after so many reports of progress and chunks; 0: do not."
_STATES = {"type": "string", "enum": sorted(JobState)}
_ID = {"type": "string", "pattern": "^([0-9]{1,9}-(-1|[0-9]{1,9}))?$", "examples": ["1-0"]}

Wait = Annotated[int | None, wait(DEFAULT_WAIT_MS)]
StreamWait = Annotated[int | None, wait(STREAM_WAIT_MS)]
Ttl = Annotated[int | None, number("ttl", _LESS, STATUS_TTL_MS, MILLISECONDS)]
Since = Annotated[int | None, number("since", _SINCE, SINCE_MS, " (milliseconds since the epoch)")]
Until = Annotated[int | None, number("until", _UNTIL, SINCE_MS, " (milliseconds since the epoch)")]
ErrorText = Annotated[str | None, text("error", _ERROR)]
WorkerId = Annotated[str | None, text("worker", _WORKER)]
NodeId = Annotated[str | None, text("node", _NODE)]
State = Annotated[JobState | None, Parameter(_state, "Only jobs in this state.", _STATES)]
PageSize = Annotated[
    int, number("limit", "How many records a page may hold.", PAGE_SIZE, default=DEFAULT_PAGE_SIZE)
]
Cursor = Annotated[int | None, number("cursor", "The `cursor` of the page before.", CURSOR)]
Follow = Annotated[bool, flag("follow", "Lines as they are printed, as events.")]
LastEvent = Annotated[
    str | None, Header(alias="Last-Event-ID"), Parameter(str, "The last event that was seen.", _ID)
]
ReplayNode = Annotated[str, text("node", "The id or the name of the node that runs it.")]
FromStart = Annotated[
    bool, Query(alias="fromStart"), flag("fromStart", "Begin anew, not from the job's last save.")
]
StopAfter = Annotated[int, Query(alias="stopAfter"), number("stopAfter", _STOP, STOP_AFTER, default=0)]
Seed = Annotated[int | None, number("seed", "Put into an input that has no seed.", SEED)]
FileName = Annotated[str, Parameter(str, "What the file is called.", {"type": "string", "default": "file"})]
