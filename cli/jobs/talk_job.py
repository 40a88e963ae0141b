"""The job of `stoker talk`: makes a talking video of an image and an audio file, and shows each chunk and
step.

Local files are uploaded first (`POST files`); URLs are passed on as they are.
"""

from __future__ import annotations

import mimetypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from stoker.cli.errors import CliError
from stoker.cli.jobs import hosted_call
from stoker.cli.jobs.hosted_call import StepsDone
from stoker.client import AsyncClient, Event, JobRecord

UPLOAD_MAX_BYTES: Final = 60 << 20
"""The service's limit for an uploaded file. Checked first: the service refuses only after the whole
upload."""


@dataclass(frozen=True, slots=True)
class TalkOptions:
    """The options of a video. `image` and `audio` are files or URLs."""

    image: str
    audio: str
    out: Path
    prompt: str
    size: str = "480p"
    check: bool = True
    assume_face: bool = False
    url: str = "http://127.0.0.1:8000"
    endpoint: str = "talking-video"


def run(request: TalkOptions, data_dir: Path, console: Console) -> JobRecord:
    hosted_call.check_output_path(request.out, (".mp4",), "video")
    for source in (request.image, request.audio):
        _check_source(source)
    began = time.monotonic()

    async def make_input(stoker: AsyncClient) -> dict[str, Any]:
        return {
            "prompt": request.prompt,
            "image": await _upload_if_local(stoker, request.endpoint, request.image),
            "audio": await _upload_if_local(stoker, request.endpoint, request.audio),
            "size": request.size,
            "enable_safety_checker": request.check,
            **({"face": "assume"} if request.assume_face else {}),
        }

    record = hosted_call.run(request.url, request.endpoint, make_input, steps_of, data_dir, console)
    result_url = hosted_call.result_url(record, "video_url", request.endpoint)
    hosted_call.download(result_url, request.out, "video")
    took = hosted_call.cost_and_time(record, time.monotonic() - began)
    console.print(f"{request.out}{hosted_call.pipeline_text(record)}: {took}")
    return record


def _check_source(source: str) -> None:
    if _is_url(source):
        return
    if not Path(source).is_file():
        raise CliError(f"there is no file {source}; give a file or an http URL")
    if not os.access(source, os.R_OK):
        raise CliError(f"{source} cannot be read: permission denied")
    size = Path(source).stat().st_size
    if not size:
        raise CliError(f"{source} is empty")
    if size > UPLOAD_MAX_BYTES:
        raise CliError(f"{source} has {size:,} bytes; a file to upload may have {UPLOAD_MAX_BYTES:,}")


def steps_of(event: Event) -> StepsDone | None:
    """Counts the steps of all chunks; the label names the chunk."""
    value = hosted_call.handler_output(event)
    match value:
        case {"chunk": int(chunk), "chunks": int(chunks), "step": int(step), "steps": int(steps)}:
            what = f"chunk {chunk} of {chunks}, step"
            return StepsDone(what, (chunk - 1) * steps + step, chunks * steps)
        case _:
            return None


async def _upload_if_local(stoker: AsyncClient, endpoint: str, source: str) -> str:
    if _is_url(source):
        return source
    media_type, _ = mimetypes.guess_type(source)
    return await stoker.upload(endpoint, Path(source), media_type or "application/octet-stream")


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))
