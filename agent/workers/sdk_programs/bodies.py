"""Reads the bodies that a protocol worker posts, and writes those of the jobs that it receives.

Pure: bytes in, bytes out. Values are passed on as their original text, so that numbers and keys stay as the
handler wrote them. A body that cannot be read fails the attempt with a reason. It is never answered with 400,
because a worker would then drop its result.

    {"output": X}                          Finished        {"error": E, "output": X}      Failed, with X
    {"output": X, "stopPod": true}         Finished, and the worker is to be replaced
    {"status": "IN_PROGRESS", "output": X} Progressed      to job-stream: {"output": X}   PartialOutput
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from stoker.worker.frames import BODY_MAX


class Finished(Struct, frozen=True):
    """The end of a job, as a program posted it. `output` is None if the handler returned `{}`: the record
    then has no output."""

    output: bytes | None
    retire: bool = False


class Failed(Struct, frozen=True):
    error: str
    output: bytes | None = None
    retire: bool = False


class Progressed(Struct, frozen=True):
    value: bytes


class PartialOutput(Struct, frozen=True):
    value: bytes


Post: TypeAlias = Finished | Failed | Progressed | PartialOutput


class NotAnObject(ValueError):
    """The error for a text that is not a JSON object. The message completes the sentence "a result that
    …"."""


def too_large(size: int) -> Failed:
    return Failed(
        f"the worker posted {size} bytes, which is over the limit of {BODY_MAX}; upload a file instead"
    )


def read_done(body: bytes) -> Post:
    """Reads a body posted to job-done."""
    try:
        found = read(body)
    except NotAnObject as wrong:
        return Failed(f"the worker posted a result that {wrong}")
    output = bytes(found.output) or None
    if bytes(found.status) == b'"IN_PROGRESS"':
        return Progressed(output or b"null")
    retire, error = bytes(found.stopPod) not in _NOTHING, bytes(found.error)
    if error not in _NOTHING:
        text = msgspec.json.decode(error, type=str) if error.startswith(b'"') else error.decode()
        return Failed(text, output, retire)
    return Finished(output, retire)


def read_partial(body: bytes) -> Post:
    """Reads a body posted to job-stream."""
    try:
        return PartialOutput(bytes(read(body).output) or b"null")
    except NotAnObject as wrong:
        return Failed(f"the worker posted a partial output that {wrong}")


class Members(msgspec.Struct):
    """The members that are read, each as JSON text, empty if it is missing. Others are ignored."""

    output: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    stopPod: msgspec.Raw = msgspec.Raw()  # the protocol's name


_READER: Final = msgspec.json.Decoder(Members)
"""Checks the syntax without creating values: a list of twenty million lists would take 2 GB and block the
agent for seconds."""

_NOTHING: Final = (b"", b"null", b"false", b"0", b'""', b"[]", b"{}")


def read(body: bytes) -> Members:
    """Raises NotAnObject."""
    try:
        body.decode()
        return _READER.decode(body)
    except RecursionError:
        raise NotAnObject("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise NotAnObject(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise NotAnObject(f"is not a JSON object: {_readable(str(error), body)}") from None


def _readable(message: str, body: bytes) -> str:
    if position := _POSITION.search(message):
        near = max(int(position[1]) - 2, 0)
        if name := _NO_VALUE.match(body, near):
            return f"{name[1].decode()} is not a JSON value"
    if "truncated" in message:
        return "it is cut short, or holds half of a surrogate pair"
    return message.removeprefix("JSON is malformed: ")


_POSITION: Final = re.compile(r"\(byte (\d+)\)")
_NO_VALUE: Final = re.compile(rb"[^NI]{0,2}(NaN|Infinity)")


def job_text(job: str, job_input: bytes, more: Mapping[str, object]) -> bytes:
    """Returns a job as the program receives it. `more` holds members other than `id` and `input`:
    s3Config."""
    head = json.dumps({"id": job, **more}, ensure_ascii=False, separators=(",", ":")).encode()
    return head[:-1] + b',"input":' + (job_input or b"null") + b"}"


def jobs_text(jobs: tuple[bytes, ...], *, many: bool) -> bytes:
    return b"[" + b",".join(jobs) + b"]" if many else jobs[0]


def stops_text(jobs: tuple[str, ...]) -> bytes:
    return json.dumps({"jobsToStop": jobs}, separators=(",", ":")).encode()
