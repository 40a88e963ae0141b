"""The fields of a body that is a form (multipart/form-data) or a JSON object."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from email.message import Message
from typing import Any

from pydantic_core import from_json
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from stoker.control.errors import BadRequest
from stoker.control.http.calls.calls import BodyReader
from stoker.control.http.openai.videos import SentFile
from stoker.control.rules.submissions import abbreviated

FILES, FIELDS = 4, 32
"""The most of each in one form."""

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
_NESTED = re.compile(r"([^\[\]]+)\[([^\[\]]+)\]")


MEDIA_TYPE_CHARACTERS = 255


def declared_media_type(header: str | None) -> str:
    """Returns the Content-Type of a file, which its object keeps. Raises BadRequest."""
    if not header:
        return "application/octet-stream"
    if len(header) > MEDIA_TYPE_CHARACTERS or not header.isascii() or not header.isprintable():
        raise BadRequest(
            f"Content-Type must have at most {MEDIA_TYPE_CHARACTERS} characters, all of them printable ASCII;"
            f" got {len(header)}: {abbreviated(header)}"
        )
    return header


async def form_fields(media_type: str, body: bytes, reader: BodyReader) -> dict[str, Any]:
    """Returns the fields of a form or a JSON object. A form's field `a[b]` is the `b` of an object `a`, as
    the official OpenAI clients write it. Raises BadRequest."""
    if media_type.partition(";")[0].strip().lower() == "multipart/form-data":
        return await _multipart(media_type, body)
    return await reader.read(_json, body)


def _json(body: bytes) -> dict[str, Any]:
    try:
        fields = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequest(f"the body is neither multipart/form-data nor JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a form or a JSON object")
    return fields


async def _multipart(media_type: str, body: bytes) -> dict[str, Any]:
    head = Message()
    head["content-type"] = media_type
    # Its boundary alone: with a charset, the caller would choose which of Python's codecs reads the fields.
    if not (boundary := head.get_boundary()):
        raise BadRequest("the body is not multipart/form-data: its Content-Type names no boundary")
    parser = MultiPartParser(
        Headers({"content-type": f'multipart/form-data; boundary="{boundary}"'}),
        _once(body),
        max_files=FILES,
        max_fields=FIELDS,
        max_part_size=len(body),
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise BadRequest(f"the body is not multipart/form-data: {error.message}") from None
    try:
        fields: dict[str, Any] = {}
        for name, value in form.multi_items():
            read = await _read(value)
            if (nested := _NESTED.fullmatch(name)) is None:
                fields[name] = read
                continue
            group = fields.setdefault(nested[1], {})
            if not isinstance(group, dict):
                raise BadRequest(f"{nested[1]} and {name} cannot both be sent")
            group[nested[2]] = read
        return fields
    finally:
        await form.close()


async def _read(value: UploadFile | str) -> str | SentFile:
    if isinstance(value, str):
        return value
    found = _MEDIA_TYPE.fullmatch(value.content_type or "")
    return SentFile(await value.read(), found[0] if found else "application/octet-stream")


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
