"""The job of `stoker image`: submits a prompt, shows each step, downloads the image, and prints its cost and
time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli.jobs import hosted_call
from stoker.cli.jobs.hosted_call import StepsDone
from stoker.client import AsyncClient, Event, JobRecord

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The options of an image. None leaves a value to the service's default."""

    prompt: str
    out: Path
    url: str = "http://127.0.0.1:8000"
    endpoint: str = "text-to-image"
    negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int | None = None

    def input(self) -> dict[str, Any]:
        values = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "width": self.width,
            "height": self.height,
            "num_inference_steps": self.steps,
            "guidance": self.guidance,
            "seed": self.seed,
            "image_format": FORMATS.get(self.out.suffix.lower()),
        }
        return {name: value for name, value in values.items() if value is not None}


def run(request: ImageOptions, data_dir: Path, console: Console) -> JobRecord:
    hosted_call.check_output_path(request.out, tuple(FORMATS), "image")
    began = time.monotonic()

    async def make_input(_: AsyncClient) -> dict[str, Any]:
        return request.input()

    record = hosted_call.run(request.url, request.endpoint, make_input, step_of, data_dir, console)
    result_url = hosted_call.result_url(record, "image_url", request.endpoint)
    hosted_call.download(result_url, request.out, "image")
    output = record.output if isinstance(record.output, dict) else {}
    seed = f", seed {output['seed']}" if "seed" in output else ""
    took = hosted_call.cost_and_time(record, time.monotonic() - began)
    console.print(f"{request.out}{seed}{hosted_call.pipeline_text(record)}: {took}")
    for note in hosted_call.notes(record):
        console.print(note, markup=False)
    return record


def step_of(event: Event) -> StepsDone | None:
    match hosted_call.handler_output(event):
        case {"step": int(step), "steps": int(steps)}:
            return StepsDone("step", step, steps)
        case _:
            return None
