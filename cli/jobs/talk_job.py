"""The job of `stoker talk`: makes a talking video of an image and an audio file, and shows each chunk and
step.

Local files are uploaded first (`POST files`); URLs are passed on as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli.jobs import hosted_call
from stoker.cli.jobs.hosted_call import StepsDone
from stoker.cli.jobs.local_sources import check_source, url_of
from stoker.client import AsyncClient, Event, JobRecord


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
        check_source(source)
    began = time.monotonic()

    async def make_input(stoker: AsyncClient) -> dict[str, Any]:
        return {
            "prompt": request.prompt,
            "image": await url_of(stoker, request.endpoint, request.image),
            "audio": await url_of(stoker, request.endpoint, request.audio),
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


def steps_of(event: Event) -> StepsDone | None:
    """Counts the steps of all chunks; the label names the chunk."""
    value = hosted_call.handler_output(event)
    match value:
        case {"chunk": int(chunk), "chunks": int(chunks), "step": int(step), "steps": int(steps)}:
            what = f"chunk {chunk} of {chunks}, step"
            return StepsDone(what, (chunk - 1) * steps + step, chunks * steps)
        case _:
            return None
