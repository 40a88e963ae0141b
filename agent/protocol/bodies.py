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
from typing import Final, TypeAlias

import msgspec

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


class NotAnObject(ValueError):
    """The text is no JSON object; the words say why."""


def too_large(size: int) -> Failed:
    return Failed(
        f"the worker posted {size} bytes, which is over the limit of {BODY_MAX}; upload a file instead"
    )


def read_done(body: bytes) -> Post:
    """What was posted to job-done."""
    try:
        found = read(body)
    except NotAnObject as wrong:
        return Failed(f"the worker posted a result that {wrong}")
    output = bytes(found.output) or None
    if bytes(found.status) == b'"IN_PROGRESS"':
        return Progressed(output or b"null")
    retire, error = bytes(found.stopPod) not in _NOTHING, bytes(found.error)
    if error not in _NOTHING:
        words = msgspec.json.decode(error, type=str) if error.startswith(b'"') else error.decode()
        return Failed(words, output, retire)
    return Finished(output, retire)


def read_piece(body: bytes) -> Post:
    """What was posted to job-stream."""
    try:
        return Piece(bytes(read(body).output) or b"null")
    except NotAnObject as wrong:
        return Failed(f"the worker posted a partial output that {wrong}")


class Members(msgspec.Struct):
    """Each as text, empty where it is missing. Whatever else there is is passed over."""

    output: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    stopPod: msgspec.Raw = msgspec.Raw()  # the field's word


_READER: Final = msgspec.json.Decoder(Members)
"""It looks at every character and makes no values: a list of twenty million lists would take 2 GB and hold
the agent up for seconds."""

_NOTHING: Final = (b"", b"null", b"false", b"0", b'""', b"[]", b"{}")


def read(body: bytes) -> Members:
    """Raises NotAnObject, with words that end a sentence."""
    try:
        body.decode()
        return _READER.decode(body)
    except RecursionError:
        raise NotAnObject("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise NotAnObject(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise NotAnObject(f"is not a JSON object: {_words(str(error), body)}") from None


def _words(said: str, body: bytes) -> str:
    if place := _PLACE.search(said):
        near = max(int(place[1]) - 2, 0)
        if name := _NO_VALUE.match(body, near):
            return f"{name[1].decode()} is no JSON value"
    if "truncated" in said:
        return "it is cut short, or holds half of a surrogate pair"
    return said.removeprefix("JSON is malformed: ")


_PLACE: Final = re.compile(r"\(byte (\d+)\)")
_NO_VALUE: Final = re.compile(rb"[^NI]{0,2}(NaN|Infinity)")


def job_text(job: str, given: bytes, more: Mapping[str, object]) -> bytes:
    """A job as it is handed over. `more` are members beside `id` and `input`: s3Config."""
    head = json.dumps({"id": job, **more}, ensure_ascii=False, separators=(",", ":")).encode()
    return head[:-1] + b',"input":' + (given or b"null") + b"}"


def jobs_text(jobs: tuple[bytes, ...], *, many: bool) -> bytes:
    return b"[" + b",".join(jobs) + b"]" if many else jobs[0]


def stops_text(jobs: tuple[str, ...]) -> bytes:
    return json.dumps({"jobsToStop": jobs}, separators=(",", ":")).encode()
