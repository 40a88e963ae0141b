"""`stoker image`: submits a prompt, shows each step, downloads the picture, tells cost and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli import hosted_call
from stoker.cli.hosted_call import Advance
from stoker.client import Event, JobRecord

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What is None is left to the service's defaults."""

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
        given = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "width": self.width,
            "height": self.height,
            "num_inference_steps": self.steps,
            "guidance": self.guidance,
            "seed": self.seed,
            "image_format": FORMATS.get(self.out.suffix.lower()),
        }
        return {name: value for name, value in given.items() if value is not None}


def run(request: ImageRequest, data_dir: Path, console: Console) -> JobRecord:
    hosted_call.check_place(request.out, tuple(FORMATS), "picture")
    began = time.monotonic()
    record = hosted_call.run(
        request.url, request.endpoint, lambda _: request.input(), step_of, data_dir, console
    )
    hosted_call.download(record.output["image_url"], request.out, "picture")
    seed = f", seed {record.output['seed']}" if "seed" in record.output else ""
    took = hosted_call.cost_and_time(record, time.monotonic() - began)
    console.print(f"{request.out}{seed}: {took}")
    return record


def step_of(event: Event) -> Advance | None:
    match hosted_call.told(event):
        case {"step": int(step), "steps": int(steps)}:
            return Advance("step", step, steps)
        case _:
            return None
