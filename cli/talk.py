"""`stoker talk`: a picture and a voice go in, a talking video comes out; each chunk and step is shown.

Files of this machine are brought along (`POST files`); URLs are passed on as they are.
"""

from __future__ import annotations

import mimetypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from stoker.cli import hosted_call
from stoker.cli.errors import CliError
from stoker.cli.hosted_call import Advance
from stoker.client import Client, Event, JobRecord

MOST: Final = 60 << 20
"""Bytes of a file that the service keeps: who sends more waits for all of it to be read, and is refused."""


@dataclass(frozen=True, slots=True)
class TalkRequest:
    """`image` and `audio`: a file or a URL."""

    image: str
    audio: str
    out: Path
    prompt: str
    size: str = "480p"
    check: bool = True
    url: str = "http://127.0.0.1:8000"
    endpoint: str = "talking-video"


def run(request: TalkRequest, data_dir: Path, console: Console) -> JobRecord:
    hosted_call.check_place(request.out, (".mp4",), "video")
    for given in (request.image, request.audio):
        _check_given(given)
    began = time.monotonic()

    def given_input(stoker: Client) -> dict[str, object]:
        return {
            "prompt": request.prompt,
            "image": _reachable(stoker, request.endpoint, request.image),
            "audio": _reachable(stoker, request.endpoint, request.audio),
            "size": request.size,
            "enable_safety_checker": request.check,
        }

    record = hosted_call.run(request.url, request.endpoint, given_input, advance_of, data_dir, console)
    hosted_call.download(record.output["video_url"], request.out, "video")
    console.print(f"{request.out}: {hosted_call.cost_and_time(record, time.monotonic() - began)}")
    return record


def _check_given(given: str) -> None:
    if _is_url(given):
        return
    if not Path(given).is_file():
        raise CliError(f"there is no file {given}; give a file or an http URL")
    if not os.access(given, os.R_OK):
        raise CliError(f"{given} cannot be read: permission denied")
    size = Path(given).stat().st_size
    if not size:
        raise CliError(f"{given} is empty")
    if size > MOST:
        raise CliError(f"{given} has {size:,} bytes; a file that is brought along may have {MOST:,}")


def advance_of(event: Event) -> Advance | None:
    """Steps of all chunks; the words say which chunk it is."""
    value = hosted_call.told(event)
    match value:
        case {"chunk": int(chunk), "chunks": int(chunks), "step": int(step), "steps": int(steps)}:
            what = f"chunk {chunk} of {chunks}, step"
            return Advance(what, (chunk - 1) * steps + step, chunks * steps)
        case _:
            return None


def _reachable(stoker: Client, endpoint: str, given: str) -> str:
    if _is_url(given):
        return given
    media_type, _ = mimetypes.guess_type(given)
    return stoker.upload(endpoint, Path(given), media_type or "application/octet-stream")


def _is_url(given: str) -> bool:
    return given.startswith(("http://", "https://"))
