"""The request of an OpenAI client, read once. Its files are kept, as inputs of jobs are URLs."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from msgspec.structs import replace

from stoker.control.http.calls.calls import IGNORED_BODY_BYTES, Call
from stoker.control.http.calls.forms import form_fields, is_form
from stoker.control.http.openai import images, videos
from stoker.control.http.openai.requests import OpenAIRequest, SentFile

DATA_URLS = (images.EDITS, videos.ROUTE)
"""Routes whose files may come as data URLs in JSON."""


async def request_of(call: Call) -> OpenAIRequest:
    """Returns what the client sent, and keeps none of it: files may be large, and answers take long. At the
    base URL of all endpoints it was read before the endpoint was known. Raises ControlError."""
    sent, call.sent = call.sent, None
    return sent or await request_in(call, await body_of(call))


async def body_of(call: Call) -> bytes:
    """Returns the body of a request. Raises ControlError."""
    if call.method != "POST":
        return await call.read(IGNORED_BODY_BYTES)
    large = is_form(media_type_of(call)) or call.job in DATA_URLS
    return await call.read(call.settings.file_bytes if large else call.settings.run_body_bytes)


async def request_in(call: Call, body: bytes) -> OpenAIRequest:
    """Returns the request in a body. Raises BadRequest."""
    if call.method != "POST":
        return OpenAIRequest(call.job, None)
    return OpenAIRequest(call.job, await form_fields(media_type_of(call), body, call.plane.large_json))


def media_type_of(call: Call) -> str:
    return call.header(b"content-type") or ""


async def url_of(call: Call, name: str, value: str | SentFile) -> str:
    """Returns the URL itself, or the URL at which the file is kept under this name."""
    if isinstance(value, str):
        return value
    file, keep = BytesIO(value.data), call.plane.uploaded_files.keep
    kept = await keep(call.endpoint, call.caller, name, file, value.media_type)
    return kept.url


async def with_urls(call: Call, request: OpenAIRequest) -> OpenAIRequest:
    """Returns the request with the URL of each file in the file's place."""
    if request.body is None:
        return request
    return replace(request, body={name: await _kept(call, one) for name, one in request.body.items()})


async def _kept(call: Call, value: Any) -> Any:
    """Returns a field with URLs for its files, which forms have as fields, and in lists and objects."""
    match value:
        case SentFile():
            return await url_of(call, value.name or "file", value)
        case list() if any(isinstance(one, SentFile) for one in value):
            return [await _kept(call, one) for one in value]
        case dict() if any(isinstance(one, SentFile) for one in value.values()):
            return {name: await _kept(call, one) for name, one in value.items()}
    return value
