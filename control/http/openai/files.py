"""A field of a request that may be a file, a URL or a data URL. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from stoker.control.errors import BadRequest
from stoker.control.http.openai.requests import SentFile

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(;[^,;]+)*;base64,", re.ASCII)


def file_field(name: str, value: Any, missing: str) -> str | SentFile:
    """Returns the URL or the file that a field holds, as such or as `{"image_url": <a URL>}`. Raises
    BadRequest, which says `missing` if there is none."""
    if isinstance(value, dict):
        if set(value) != {"image_url"}:
            raise BadRequest(f"{name} must be a file, or have an image_url and nothing else")
        value = value["image_url"]
    if isinstance(value, SentFile):
        if not value.data:
            raise BadRequest(f"{name} is an empty file")
        return value
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} is missing: {missing}")
    return _of_data_url(name, value) if value.startswith("data:") else value


def _of_data_url(name: str, url: str) -> SentFile:
    head = _DATA_URL.match(url)
    if head is None:
        raise BadRequest(f"{name} must be a data URL of the form data:<media type>;base64,<data>")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"{name} is a data URL with wrong base64: {error}") from None
    if not data:
        raise BadRequest(f"{name} is an empty file")
    return SentFile(data, head[1] or "application/octet-stream")
