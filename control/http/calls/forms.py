"""The fields of a body that is a form (multipart/form-data) or a JSON object."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from email.message import Message
from functools import partial
from typing import Any

from pydantic_core import from_json
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from stoker.control.errors import BadRequest
from stoker.control.http.openai.requests import SentFile
from stoker.control.large_json import LargeJson
from stoker.control.rules.submissions import abbreviated

FILES, FIELDS = 16, 64
"""The most of each in one form."""

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
_NESTED = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")

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


def is_form(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def form_fields(media_type: str, body: bytes, large_json: LargeJson) -> dict[str, Any]:
    """Returns the fields of a form or, whatever the media type, of a JSON object. A form's field `a[b]` is
    the `b` of an object `a`, and `a[]` one value of a list, as the official OpenAI clients write them. Raises
    BadRequest."""
    if is_form(media_type):
        return await _multipart(media_type, body)
    return await large_json.read(partial(_json, media_type), body)


def _json(media_type: str, body: bytes) -> dict[str, Any]:
    try:
        fields = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        declared = f"; it is declared as {media_type[:100]}" if media_type else ""
        raise BadRequest(
            f"the body must be JSON (application/json) or a form (multipart/form-data): {error}{declared}"
        ) from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object or a form")
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
            _add(fields, name, await _read(value))
        return fields
    finally:
        await form.close()


def _add(fields: dict[str, Any], name: str, value: str | SentFile) -> None:
    """Adds a field of a form. Raises BadRequest for a name that was sent in two ways."""
    if (found := _NESTED.fullmatch(name)) is None:
        if name in fields:
            raise BadRequest(f"{name} is sent twice; each value of a list is sent as {name}[]")
        fields[name] = value
        return
    whole, part = found.groups()
    group = fields.setdefault(whole, {} if part else [])
    if part and isinstance(group, dict):
        group[part] = value
    elif not part and isinstance(group, list):
        group.append(value)
    else:
        raise BadRequest(f"{whole} and {name} cannot both be sent")


async def _read(value: UploadFile | str) -> str | SentFile:
    if isinstance(value, str):
        return value
    found = _MEDIA_TYPE.fullmatch(value.content_type or "")
    media_type = found[0] if found else "application/octet-stream"
    return SentFile(await value.read(), media_type, value.filename or "")


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
