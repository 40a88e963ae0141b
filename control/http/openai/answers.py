"""Results of jobs in the shape of the OpenAI API: bodies, events of a stream, errors. Pure.

output of a job                      answer
[one value], or one value            200, that value
{"error": {..., "code": 404}}        404, the same error
a text with `data:` lines            the text, as an event of the stream
any other chunk                      data: <its JSON>
FAILED                               500, the handler's message, with a header that stops retries
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView

DONE = b"data: [DONE]\n\n"

TEXTS = ("text", "srt", "vtt")
"""Values of `response_format` of a transcription that are answered with a plain text."""

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ENDS = {JobState.FAILED: 500, JobState.TIMED_OUT: 504, JobState.CANCELLED: 503}


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def failed(view: JobView) -> tuple[int, dict[str, Any]]:
    """Status and body for a job that ended without an output: FAILED, TIMED_OUT or CANCELLED."""
    message = view.error or view.reason or f"the job ended {view.state}"
    return _ENDS[view.state], error_body(_ENDS[view.state], message, view.state.value.lower())


def completed(output: Any) -> tuple[int, Any]:
    """Status and body of an output. What a generator yielded once comes as a list of one."""
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    error = reported_error(output)
    return (200, output) if error is None else (_status_of(error), {"error": error})


def reported_error(output: Any) -> dict[str, Any] | None:
    """Returns the error in an output: public workers return errors as `{"error": {...}}`, `{"error": "text"}`
    or `{"object": "error", ...}`."""
    if not isinstance(output, dict):
        return None
    if output.get("object") == "error":
        return {name: value for name, value in output.items() if name != "object"}
    error = output.get("error")
    if isinstance(error, str):
        return dict(error_body(400, error)["error"])
    return error if isinstance(error, dict) else None


def wants_text(body: Mapping[str, Any] | None) -> bool:
    """Returns whether a text is to be answered as it is."""
    return body is not None and body.get("response_format") in TEXTS


def _status_of(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 400


def event(chunk: Any) -> bytes:
    """Returns a chunk as events of a stream. Batches of chunks come as lists."""
    if isinstance(chunk, list):
        return b"".join(map(event, chunk))
    if not isinstance(chunk, str):
        return b"data: " + to_json(chunk) + b"\n\n"
    if not chunk.startswith(("data:", "event:", "id:", ":")):
        return b"data: " + to_json(chunk) + b"\n\n"
    return chunk.rstrip("\n").encode() + b"\n\n"
