"""URL inputs: asks the agent to fetch them, and copies them into the job's scratch folder.

    fetch ── data: URL? ── decoded here
         └── fetch frame ── waits ── fetched (+descriptor) ── type checked ── copied ── InputFile
                                 └── fetch_failed, cancel or the job's end ── raises

The agent opens no path of the handler's, and this process none of the agent's: what arrives is a descriptor,
open for reading, and the copy belongs to the job. The answer is a `concurrent.futures.Future`, which a thread
can wait for and a loop can await.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import os
import threading
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from stoker.worker.errors import HandlerError, InputRefused, JobOver
from stoker.worker.frames import Frame
from stoker.worker.job.attempt import Attempt
from stoker.worker.payloads.media_types import HEAD, extension_of, matches, media_type_of_bytes

URL_MAX = 8 * 1024


@dataclass(frozen=True, slots=True)
class InputFile(os.PathLike[str]):
    """A file below the job's scratch folder; it can be used wherever a path can. `media_type` is found in its
    bytes; None if they are of no known type."""

    path: Path
    size: int
    sha256: str
    media_type: str | None

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    url: str
    max_bytes: int
    media_types: tuple[str, ...]
    timeout_s: float


def fetch_request(
    url: object, max_bytes: int, media_types: Collection[str], timeout_s: float
) -> FetchRequest:
    """Raises InputRefused for an invalid URL, HandlerError for invalid limits."""
    if isinstance(media_types, str):
        media_types = (media_types,)
    if max_bytes < 0 or not 0 < timeout_s < 1e9:
        raise HandlerError(f"a fetch of at most {max_bytes} bytes within {timeout_s} s cannot be made")
    if not isinstance(url, str) or not url:
        raise InputRefused("a URL must be text that is not empty", "malformed")
    if len(url) > URL_MAX and not _is_data(url):
        raise InputRefused(f"the URL has {len(url)} characters; at most {URL_MAX} are allowed", "malformed")
    return FetchRequest(url, int(max_bytes), tuple(media_types), float(timeout_s))


def fetch(attempt: Attempt, request: FetchRequest) -> InputFile:
    if has_loop():
        raise HandlerError("write `await job.fetch_async(...)` here: job.fetch would hold up the event loop")
    if _is_data(request.url):
        return _decoded(attempt, request)
    answer = _request(attempt, request)
    attempt.wait(answer.done)
    return _save(attempt, request, answer.result())


async def fetch_async(attempt: Attempt, request: FetchRequest) -> InputFile:
    if _is_data(request.url):
        return await asyncio.to_thread(_decoded, attempt, request)
    if not attempt.receives_in_background:
        raise HandlerError("this handler is not asynchronous: write job.fetch(...)")
    answer = _request(attempt, request)
    try:
        frame = await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(_close_file)  # it may have arrived just now
        raise
    return await _save_in_thread(attempt, request, frame)


async def _save_in_thread(attempt: Attempt, request: FetchRequest, frame: Frame) -> InputFile:
    """Saves on a thread. If a cancel comes before one is free, no thread sees the frame's descriptor."""
    first = threading.Lock()

    def save() -> InputFile:
        if not first.acquire(blocking=False):
            raise JobOver("nothing waits for this input any more")
        return _save(attempt, request, frame)

    try:
        return await asyncio.to_thread(save)
    except asyncio.CancelledError:
        if first.acquire(blocking=False):
            frame.close()
        raise


def _request(attempt: Attempt, request: FetchRequest) -> Future[Frame]:
    answer: Future[Frame] = Future()
    about = {"url": request.url, "max_bytes": request.max_bytes, "timeout_s": request.timeout_s}
    attempt.request("fetch", answer, **about)
    return answer


def _close_file(answer: Future[Frame]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        answer.result().close()


def _save(attempt: Attempt, request: FetchRequest, frame: Frame) -> InputFile:
    fields = frame.fields
    try:
        if frame.fd is None:
            raise InputRefused(
                str(fields["error"]), str(fields["reason"]), retryable=bool(fields["retryable"])
            )
        media_type = _checked_type(request, os.pread(frame.fd, HEAD, 0))
        path = _path(attempt, int(fields["n"]), media_type)
        _copy(frame.fd, path, fields["size"])
        file = InputFile(path, int(fields["size"]), str(fields["sha256"]), media_type)
        attempt.note_file(public_url(request.url), file.size, file.sha256)
        return file
    finally:
        frame.close()


def _checked_type(request: FetchRequest, head: bytes) -> str | None:
    """Returns the media type. Raises InputRefused if that type is not wanted."""
    media_type = media_type_of_bytes(head)
    if not matches(media_type, request.media_types):
        found = media_type or "of an unknown type"
        wanted = " or ".join(request.media_types)
        raise InputRefused(f"{public_url(request.url)} is {found}; expected {wanted}", "wrong_type")
    return media_type


def _copy(fd: int, path: Path, size: int) -> None:
    try:
        with path.open("xb") as file:
            done = 0
            while done < size and (sent := os.sendfile(file.fileno(), fd, done, size - done)):
                done += sent
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _no_room(error) from None


def _decoded(attempt: Attempt, request: FetchRequest) -> InputFile:
    """Decodes a data: URL, with the same limits."""
    attempt.raise_if_cancelled()
    head, comma, text = request.url.partition(",")
    if (
        len(text) > 4 * request.max_bytes + 4
    ):  # base64 adds a third; percent signs make it three times as long
        raise _too_large(request, f"{len(text)} characters")
    try:
        body = (
            binascii.a2b_base64(text, strict_mode=True)
            if head.endswith(";base64")
            else unquote_to_bytes(text)
        )
    except (binascii.Error, ValueError):
        raise InputRefused("the data: URL is not valid base64", "malformed") from None
    if not comma:
        raise InputRefused("the data: URL has no comma before its data", "malformed")
    if len(body) > request.max_bytes:
        raise _too_large(request, f"{len(body)} bytes")
    media_type = _checked_type(request, body[:HEAD])
    path = _path(attempt, attempt.next_input_number(), media_type)
    try:
        path.write_bytes(body)
    except OSError as error:
        raise _no_room(error) from None
    return InputFile(path, len(body), hashlib.sha256(body).hexdigest(), media_type)


def _too_large(request: FetchRequest, found: str) -> InputRefused:
    message = f"{public_url(request.url)} has {found}; at most {request.max_bytes} bytes are allowed"
    return InputRefused(message, "too_large")


def _no_room(error: OSError) -> InputRefused:
    message = f"the input cannot be written to the job's scratch folder: {error.strerror or error}"
    return InputRefused(message, "no_room", retryable=True)


def _path(attempt: Attempt, n: int, media_type: str | None) -> Path:
    return Path(attempt.scratch) / f"input-{n}{extension_of(media_type)}"


def public_url(url: str) -> str:
    """Returns the URL for messages, without the parts that may hold a secret."""
    if _is_data(url):
        return "the data: URL"
    before, at, rest = url.partition("#")[0].partition("?")[0].partition("@")
    return (f"{before.partition('//')[0]}//{rest}" if at else before)[:200]


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
