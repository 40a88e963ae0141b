"""URL inputs: asks the agent for what lies there, and puts it into the job's scratch folder.

    fetch ── data: URL? ── decoded here
         └── fetch frame ── waits ── fetched (+descriptor) ── copied ── looked at ── InputFile
                                 └── fetch_failed, cancel or the job's end ── raises

The agent opens no name of the handler's, and this process none of the agent's: what comes is a descriptor,
open for reading, and the copy is the job's own. The waiting is a `concurrent.futures.Future`, which a thread
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

from stoker.worker.attempt import Attempt
from stoker.worker.errors import HandlerError, InputRefused, JobOver
from stoker.worker.frames import Frame
from stoker.worker.media_types import HEAD, ending_of, matches, sniffed

URL_MAX = 8 * 1024


@dataclass(frozen=True, slots=True)
class InputFile(os.PathLike[str]):
    """A file below the job's scratch folder; it can stand wherever a path can. `media_type` is what its bytes
    look like, None where nothing is known of them."""

    path: Path
    size: int
    sha256: str
    media_type: str | None

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Wish:
    url: str
    max_bytes: int
    media_types: tuple[str, ...]
    timeout_s: float


def wish(url: object, max_bytes: int, media_types: Collection[str], timeout_s: float) -> Wish:
    """Raises InputRefused for a URL that is none, HandlerError for limits that are none."""
    if isinstance(media_types, str):
        media_types = (media_types,)
    if max_bytes < 0 or not 0 < timeout_s < 1e9:
        raise HandlerError(f"a fetch of at most {max_bytes} bytes within {timeout_s} s cannot be made")
    if not isinstance(url, str) or not url:
        raise InputRefused("a URL must be text that is not empty", "malformed")
    if len(url) > URL_MAX and not _is_data(url):
        raise InputRefused(f"the URL has {len(url)} letters; at most {URL_MAX} are allowed", "malformed")
    return Wish(url, int(max_bytes), tuple(media_types), float(timeout_s))


def fetch(attempt: Attempt, wished: Wish) -> InputFile:
    if _has_loop():
        raise HandlerError("write `await job.fetch_async(...)` here: job.fetch would hold up the event loop")
    if _is_data(wished.url):
        return _decoded(attempt, wished)
    answer = _begin(attempt, wished)
    attempt.wait(answer.done)
    return _taken(attempt, wished, answer.result())


async def fetch_async(attempt: Attempt, wished: Wish) -> InputFile:
    if _is_data(wished.url):
        return await asyncio.to_thread(_decoded, attempt, wished)
    if not attempt.hears:
        raise HandlerError("this handler is not asynchronous: write job.fetch(...)")
    answer = _begin(attempt, wished)
    try:
        frame = await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(_drop)  # it may have come in this very moment
        raise
    return await _taken_beside(attempt, wished, frame)


async def _taken_beside(attempt: Attempt, wished: Wish, frame: Frame) -> InputFile:
    """On a thread. A cancel may come before one is free, which then never sees the frame's descriptor."""
    first = threading.Lock()

    def take() -> InputFile:
        if not first.acquire(blocking=False):
            raise JobOver("nobody waits for this input any more")
        return _taken(attempt, wished, frame)

    try:
        return await asyncio.to_thread(take)
    except asyncio.CancelledError:
        if first.acquire(blocking=False):
            frame.close()
        raise


def _begin(attempt: Attempt, wished: Wish) -> Future[Frame]:
    answer: Future[Frame] = Future()
    attempt.ask(answer, url=wished.url, max_bytes=wished.max_bytes, timeout_s=wished.timeout_s)
    return answer


def _drop(answer: Future[Frame]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        answer.result().close()


def _taken(attempt: Attempt, wished: Wish, frame: Frame) -> InputFile:
    fields = frame.fields
    try:
        if frame.fd is None:
            raise InputRefused(
                str(fields["error"]), str(fields["reason"]), retryable=bool(fields["retryable"])
            )
        media_type = _looked_at(wished, os.pread(frame.fd, HEAD, 0))
        path = _path(attempt, int(fields["n"]), media_type)
        _copy(frame.fd, path, fields["size"])
        return InputFile(path, int(fields["size"]), str(fields["sha256"]), media_type)
    finally:
        frame.close()


def _looked_at(wished: Wish, head: bytes) -> str | None:
    """The media type. Raises InputRefused where it is not a wanted one."""
    media_type = sniffed(head)
    if not matches(media_type, wished.media_types):
        found = media_type or "of an unknown type"
        wanted = " or ".join(wished.media_types)
        raise InputRefused(f"{shown(wished.url)} is {found}; expected {wanted}", "wrong_type")
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


def _decoded(attempt: Attempt, wished: Wish) -> InputFile:
    """A data: URL, under the same limits."""
    attempt.raise_if_cancelled()
    head, comma, text = wished.url.partition(",")
    if len(text) > 4 * wished.max_bytes + 4:  # base64 grows by a third, percent signs threefold
        raise _too_large(wished, f"{len(text)} letters")
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
    if len(body) > wished.max_bytes:
        raise _too_large(wished, f"{len(body)} bytes")
    media_type = _looked_at(wished, body[:HEAD])
    path = _path(attempt, attempt.new_input(), media_type)
    try:
        path.write_bytes(body)
    except OSError as error:
        raise _no_room(error) from None
    return InputFile(path, len(body), hashlib.sha256(body).hexdigest(), media_type)


def _too_large(wished: Wish, found: str) -> InputRefused:
    told = f"{shown(wished.url)} has {found}; at most {wished.max_bytes} bytes are allowed"
    return InputRefused(told, "too_large")


def _no_room(error: OSError) -> InputRefused:
    told = f"the input cannot be written to the job's scratch folder: {error.strerror or error}"
    return InputRefused(told, "no_room", retryable=True)


def _path(attempt: Attempt, n: int, media_type: str | None) -> Path:
    return Path(attempt.scratch) / f"input-{n}{ending_of(media_type)}"


def shown(url: str) -> str:
    """For a sentence: without what may be a secret."""
    if _is_data(url):
        return "the data: URL"
    before, at, rest = url.partition("#")[0].partition("?")[0].partition("@")
    return (f"{before.partition('//')[0]}//{rest}" if at else before)[:200]


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
