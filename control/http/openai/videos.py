"""`/openai/v1/videos` at the hosted model of talking videos, as jobs and back. Pure.

    prompt                            the same
    input_reference                   image: a file, a URL, or {"image_url": a URL}
    audio                             the same: a file or a URL, not known to the OpenAI API
    size "480p", "720p", "1280x720"   size: 480p where the shorter side is at most 480, otherwise 720p
    enable_safety_checker, face       the same, not known to the OpenAI API

A URL may be a data URL, as the official clients send no file but `input_reference`. `model` and `seconds`
have no effect: a talking video is as long as its audio.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic_core import from_json

from stoker.control.errors import BadRequest
from stoker.control.http.openai.files import file_field
from stoker.control.http.openai.requests import SentFile
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView, Page

ROUTE = "/v1/videos"

_FACES = ("find", "assume")
_ALLOWED = ("prompt", "input_reference", "audio", "size", "enable_safety_checker", "face", "model", "seconds")
_LIST_QUERY, _PAGE, _MOST_IN_PAGE = ("after", "limit", "order", "model"), 20, 100
_SIZES = ("480p", "720p")
_SHORT_SIDE_480P = 480
_PIXELS = re.compile(r"(\d{2,5})x(\d{2,5})", re.ASCII)
_MISSING = (
    "a talking video is made from input_reference, an image, and audio, each a file, a URL or a data URL (the"
    ' official Python client sends audio as extra_body={"audio": URL})'
)
_BOOLEANS = {"true": True, "false": False, True: True, False: False}
_STATUS = {
    JobState.IN_QUEUE: "queued",
    JobState.IN_PROGRESS: "in_progress",
    JobState.COMPLETED: "completed",
}


class VideoRequest(Struct, frozen=True):
    """A request for a video. `image` and `audio` are URLs, or what was sent instead. `rest` is the rest of
    the job's input."""

    rest: Mapping[str, Any]
    image: str | SentFile
    audio: str | SentFile


def parse_video(fields: Mapping[str, Any]) -> VideoRequest:
    """Raises BadRequest, which names the field. The values of the job's input are checked with the job."""
    for name in fields:
        if name not in _ALLOWED:
            raise BadRequest(f"{name} is not known here; allowed: {', '.join(_ALLOWED)}")
    rest = {"prompt": fields.get("prompt"), "size": _size(fields.get("size"))}
    if not isinstance(rest["prompt"], str):
        raise BadRequest("prompt is missing: a text that says what the video shows")
    checked = fields.get("enable_safety_checker")
    if checked is not None:
        if not isinstance(checked, bool | str) or checked not in _BOOLEANS:
            raise BadRequest(f"enable_safety_checker must be true or false; got {checked!r:.100}")
        rest["enable_safety_checker"] = _BOOLEANS[checked]
    if (face := fields.get("face")) is not None:
        if face not in _FACES:
            raise BadRequest(f"face must be {' or '.join(_FACES)}; got {face!r:.100}")
        rest["face"] = face
    return VideoRequest(rest, _file("input_reference", fields), _file("audio", fields))


def _size(size: Any) -> str:
    if size is None:
        return "720p"
    if size in _SIZES:
        return str(size)
    found = _PIXELS.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise BadRequest(f"size must be 480p, 720p or WIDTHxHEIGHT in pixels, as 1280x720; got {size!r:.100}")
    return _SIZES[min(int(found[1]), int(found[2])) > _SHORT_SIDE_480P]


def _file(name: str, fields: Mapping[str, Any]) -> str | SentFile:
    return file_field(name, fields.get(name), _MISSING)


def parse_listing(query: Mapping[str, str]) -> tuple[int, str | None]:
    """Returns how many videos a page of the list has at most, and the id of the video before it. Raises
    BadRequest."""
    for name in query:
        if name not in _LIST_QUERY:
            raise BadRequest(f"{name} is not known here; allowed: {', '.join(_LIST_QUERY)}")
    if (order := query.get("order", "desc")) != "desc":
        raise BadRequest(f"order must be desc: the newest video is first; got {order[:100]!r}")
    limit = query.get("limit", str(_PAGE))
    if not re.fullmatch("[0-9]{1,3}", limit) or not 1 <= int(limit) <= _MOST_IN_PAGE:
        raise BadRequest(f"limit must be a whole number from 1 to {_MOST_IN_PAGE}; got {limit[:100]!r}")
    return int(limit), query.get("after")


def video_list(page: Page) -> dict[str, Any]:
    """Returns a page of the list."""
    ids = [view.id for view in page.views]
    return {
        "object": "list",
        "data": [video_object(view) for view in page.views],
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": bool(ids) and page.cursor is not None,
    }


def video_object(view: JobView) -> dict[str, Any]:
    """Returns the job as a video. What a job does not record (prompt, size, seconds) is null."""
    return {
        "id": view.id,
        "object": "video",
        "model": view.endpoint,
        "status": _STATUS.get(view.state, "failed"),
        "progress": 100 if view.state is JobState.COMPLETED else _percent(view.progress),
        "created_at": int(view.created_at),
        "completed_at": _completed_at(view),
        "expires_at": None,
        "error": _error(view),
        "prompt": None,
        "size": None,
        "seconds": None,
        "remixed_from_video_id": None,
    }


def _percent(progress: bytes | None) -> int:
    """Returns the percentage of all chunks' steps; 0 before the first step, and at most 99 before the end."""
    reported: Any = None if progress is None else from_json(progress)
    try:
        done = (reported["chunk"] - 1) * reported["steps"] + reported["step"]
        return int(max(0, min(99, 100 * done // (reported["chunks"] * reported["steps"]))))
    except (TypeError, KeyError, ZeroDivisionError):
        return 0


def _completed_at(view: JobView) -> int | None:
    if view.state is not JobState.COMPLETED:
        return None
    return int(view.created_at + ((view.delay_ms or 0) + (view.execution_ms or 0)) / 1000)


def _error(view: JobView) -> dict[str, str] | None:
    if view.state in _STATUS:
        return None
    message = view.error or view.reason or f"the job ended {view.state}"
    return {"code": view.state.value.lower(), "message": message}
