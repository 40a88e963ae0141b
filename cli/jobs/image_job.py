"""The job of `stoker image`: submits a prompt, shows each step, downloads the images, and prints cost and
time.

Without a file name, the name is made of the prompt's first words, and never that of a file that is there:
`a-lighthouse-in-a-storm.png`, then `a-lighthouse-in-a-storm-2.png`. Several images are numbered likewise.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from stoker.cli.errors import CliError
from stoker.cli.jobs import hosted_call
from stoker.cli.jobs.hosted_call import StepsDone
from stoker.cli.jobs.local_sources import check_source, url_of
from stoker.cli.previews.screen import Screen
from stoker.client import AsyncClient, Event, JobRecord

NAME_WORDS, NAME_CHARACTERS = 8, 60
"""The most words of a prompt in the name of a file, and the most characters."""

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The options of an image. None leaves a value to the service's default."""

    prompt: str
    out: Path | None = None
    url: str = "http://127.0.0.1:8000"
    endpoint: str = "text-to-image"
    negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int | None = None
    number: int | None = None
    scheduler: str | None = None
    loras: tuple[dict[str, Any], ...] = ()
    images: tuple[str, ...] = ()
    strength: float | None = None

    def input(self, images: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the job's input, with the URLs of its images: `image`, or `images`."""
        values = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "width": self.width,
            "height": self.height,
            "num_inference_steps": self.steps,
            "guidance": self.guidance,
            "seed": self.seed,
            "image_format": "png" if self.out is None else FORMATS.get(self.out.suffix.lower()),
            "num_images": self.number,
            "scheduler": self.scheduler,
            "loras": list(self.loras) or None,
            **images,
            "strength": self.strength,
        }
        return {name: value for name, value in values.items() if value is not None}


def lora_of(text: str) -> dict[str, Any]:
    """Returns the LoRA of `NAME` or `NAME=SCALE`. Raises CliError."""
    name, equals, scale = text.partition("=")
    try:
        return {"name": name, "scale": float(scale)} if equals else {"name": name}
    except ValueError:
        raise CliError(f"--lora takes NAME or NAME=SCALE, as ink=0.8; got {text!r}") from None


def image_field(count: int, properties: Mapping[str, Any], endpoint: str) -> str:
    """Returns the input that takes so many images, of those in an endpoint's schema, which is empty if it has
    none. Raises CliError."""
    if count > 1 and "image" in properties and "images" not in properties:
        raise CliError(f"{endpoint} starts from one image; --image was given {count} times")
    several = count > 1 or ("images" in properties and "image" not in properties)
    return "images" if several else "image"


def run(request: ImageOptions, data_dir: Path, console: Console, screen: Screen | None = None) -> JobRecord:
    for source in request.images:
        check_source(source)
    out = request.out or _unused(Path(f"{_words(request.prompt)}.png"))
    hosted_call.check_output_path(out, tuple(FORMATS), "image")
    began = time.monotonic()

    async def make_input(stoker: AsyncClient) -> dict[str, Any]:
        return request.input(await _images_of(stoker, request) if request.images else {})

    record = hosted_call.run(request.url, request.endpoint, make_input, step_of, data_dir, console, screen)
    took = hosted_call.cost_and_time(record, time.monotonic() - began)
    for number, (url, seed) in enumerate(_images(record, request.endpoint)):
        path = out if number == 0 else _unused(out)
        hosted_call.download(url, path, "image")
        console.print(f"{path}{seed}{hosted_call.pipeline_text(record)}: {took}")
        took = "the same job"
    for note in hosted_call.notes(record):
        console.print(note, markup=False)
    return record


async def _images_of(stoker: AsyncClient, request: ImageOptions) -> dict[str, Any]:
    schema = (await stoker.input_schemas()).get(request.endpoint, {})
    name = image_field(len(request.images), schema.get("properties", {}), request.endpoint)
    urls = [await url_of(stoker, request.endpoint, source) for source in request.images]
    return {name: urls if name == "images" else urls[0]}


def _images(record: JobRecord, endpoint: str) -> list[tuple[str, str]]:
    """Returns the URL of each image, and its seed as text."""
    output = record.output if isinstance(record.output, dict) else {}
    several = output.get("images")
    found = several if isinstance(several, list) and several else [output]
    if len(found) == 1:
        return [(hosted_call.result_url(record, "image_url", endpoint), _seed(output))]
    return [
        (str(one["image_url"]), _seed(one)) for one in found if isinstance(one, dict) and "image_url" in one
    ]


def _seed(output: Mapping[str, Any]) -> str:
    return f", seed {output['seed']}" if "seed" in output else ""


def _words(prompt: str) -> str:
    """Returns the first words of a prompt as the name of a file."""
    words = re.findall(r"\w+", prompt.lower())[:NAME_WORDS]
    return "-".join(words)[:NAME_CHARACTERS] or "image"


def _unused(path: Path) -> Path:
    """Returns the path, numbered if there is such a file."""
    numbers = itertools.count(2)
    found = path
    while found.exists():
        found = path.with_name(f"{path.stem}-{next(numbers)}{path.suffix}")
    return found


def step_of(event: Event) -> StepsDone | None:
    match hosted_call.handler_output(event):
        case {"step": int(step), "steps": int(steps)}:
            return StepsDone("step", step, steps)
        case _:
            return None
