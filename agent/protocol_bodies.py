"""What a protocol worker posts, and the jobs that it is handed, as text.

Pure: bytes in, bytes out. A value is never written anew: its own text goes on, so a number or a key stays
what the handler made of it. What cannot be read fails the attempt with a sentence, and is never refused: a
worker that is told 400 forgets its result.

    {"output": X}                          Finished        {"error": E, "output": X}      Failed, X is kept
    {"output": X, "stopPod": true}         Finished, and the worker is to be replaced
    {"status": "IN_PROGRESS", "output": X} Progressed      to job-stream: {"output": X}   Piece
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from stoker.worker.frames import BODY_MAX


@dataclass(frozen=True, slots=True)
class Finished:
    """`output` is None when the handler returned `{}`: the record has none then."""

    output: bytes | None
    retire: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    error: str
    output: bytes | None = None
    retire: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    value: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    value: bytes


Post: TypeAlias = Finished | Failed | Progressed | Piece

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class NotAnObject(ValueError):
    """The text is no JSON object; the words say why."""


def too_large(size: int) -> Failed:
    return Failed(
        f"the worker posted {size} bytes, which is over the limit of {BODY_MAX}; upload a file instead"
    )


def read_done(body: bytes) -> Post:
    """What was posted to job-done."""
    try:
        found = members(body)
    except NotAnObject as wrong:
        return Failed(f"the worker posted a result that {wrong}")
    output = found["output"][1] if "output" in found else None
    if found.get("status", (None,))[0] == "IN_PROGRESS":
        return Progressed(b"null" if output is None else output)
    retire = bool(found.get("stopPod", (False,))[0])
    error, text = found.get("error", (None, b""))
    if error:
        return Failed(error if isinstance(error, str) else text.decode(), output, retire)
    return Finished(output, retire)


def read_piece(body: bytes) -> Post:
    """What was posted to job-stream."""
    try:
        found = members(body)
    except NotAnObject as wrong:
        return Failed(f"the worker posted a partial output that {wrong}")
    return Piece(found["output"][1] if "output" in found else b"null")


def members(body: bytes) -> dict[str, tuple[Any, bytes]]:
    """Each member's value and its text. Raises NotAnObject, with words that end a sentence."""
    try:
        text = body.decode()
        found, end = _object(text, _skip(text, 0))
        if _skip(text, end) != len(text):
            raise ValueError(f"more follows at character {end}")
    except RecursionError:
        raise NotAnObject("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise NotAnObject(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    except IndexError:
        raise NotAnObject("is not a JSON object: it is cut short") from None
    except ValueError as error:
        raise NotAnObject(f"is not a JSON object: {error}") from None
    return found


def _object(text: str, at: int) -> tuple[dict[str, tuple[Any, bytes]], int]:
    found: dict[str, tuple[Any, bytes]] = {}
    at = _skip(text, _expect(text, at, "{"))
    if text[at] == "}":
        return found, at + 1
    while True:
        _expect(text, at, '"')
        name, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = _DECODER.raw_decode(text, begin)
        found[name] = value, text[begin:end].encode()
        at = _skip(text, end)
        if text[at] == "}":
            return found, at + 1
        at = _skip(text, _expect(text, at, ","))


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _expect(text: str, at: int, sign: str) -> int:
    if text[at] != sign:
        raise ValueError(f"{sign} is missing at character {at}")
    return at + 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def job_text(job: str, given: bytes, more: Mapping[str, object]) -> bytes:
    """A job as it is handed over. `more` are members beside `id` and `input`: s3Config, policy."""
    head = json.dumps({"id": job, **more}, ensure_ascii=False, separators=(",", ":")).encode()
    return head[:-1] + b',"input":' + (given or b"null") + b"}"


def jobs_text(jobs: tuple[bytes, ...], *, many: bool) -> bytes:
    return b"[" + b",".join(jobs) + b"]" if many else jobs[0]


def stops_text(jobs: tuple[str, ...]) -> bytes:
    return json.dumps({"jobsToStop": jobs}, separators=(",", ":")).encode()
