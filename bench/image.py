"""Pictures by the hosted image model's handler against the bare diffusers pipeline, in one run.

    python bench/image.py [--side 1024] [--steps 28] [--runs 5] [--cpu]

Both make the same picture on the same loaded pipeline, in turns. The handler adds what a caller gets
besides: checks, progress, previews, the file with its metadata. Prints seconds (mean and spread), steps per
second, the ratio, and on a GPU the most memory that was in use. The pipeline is the one that the environment
names (STOKER_PIPELINE, STOKER_WEIGHTS_DIR), else the best that is here.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import stoker
from stoker.models.text_to_image import flux
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device
from stoker.worker.testing import LocalJob

PROMPT = "a lighthouse on a cliff at dawn"
WARM_UPS = 2


def main() -> None:
    arguments = parse()
    device = Device() if arguments.cpu or not torch.cuda.is_available() else gpu()
    model = TextToImage()
    set_up = timed(lambda: model.setup(device))
    given = {"prompt": PROMPT, "width": arguments.side, "height": arguments.side, "seed": 1}
    given["num_inference_steps"] = arguments.steps

    def by_handler() -> None:
        LocalJob(model.run, given).run().result()

    def bare() -> None:
        bare_pipeline(model, given)

    times = alternate([by_handler, bare], arguments.runs)
    report(model, device, arguments, set_up, *times)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The image handler against the bare pipeline.")
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    return parser.parse_args()


def gpu() -> Device:
    found = torch.cuda.get_device_properties(0)
    return Device(uuid=f"GPU-{found.uuid}", kind="gpu", name=found.name)


def bare_pipeline(model: TextToImage, given: dict[str, Any]) -> None:
    model.pipe(
        given["prompt"],
        width=given["width"],
        height=given["height"],
        num_inference_steps=given["num_inference_steps"],
        guidance_scale=7.5,
        max_sequence_length=model.pipeline.text_tokens,
        generator=torch.Generator("cpu").manual_seed(given["seed"]),
    )


def timed(work: Callable[[], object]) -> float:
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def alternate(works: list[Callable[[], None]], runs: int) -> list[list[float]]:
    """In turns, so that a machine that slows down slows both."""
    for _ in range(WARM_UPS):
        for work in works:
            work()
    rounds = [[timed(work) for work in works] for _ in range(runs)]
    return [list(column) for column in zip(*rounds, strict=True)]


def report(
    model: TextToImage,
    device: Device,
    arguments: argparse.Namespace,
    set_up: float,
    handler: list[float],
    bare: list[float],
) -> None:
    print(
        f"{model.pipeline.name} ({model.pipeline.profile}) on {device.name}, "
        f"{arguments.side} x {arguments.side}, {arguments.steps} steps, {arguments.runs} runs"
    )
    print(f"  set-up   {set_up:8.3f} s")
    for name, times in (("handler", handler), ("bare", bare)):
        mean, spread = statistics.mean(times), statistics.pstdev(times)
        print(f"  {name:8} {mean:8.3f} s ± {spread:.3f}   {arguments.steps / mean:8.1f} steps/s")
    ratios = [one / other for one, other in zip(handler, bare, strict=True)]
    print(f"  ratio    {statistics.median(ratios):8.3f}   (median of the runs)")
    facts: dict[str, object] = {
        "stoker": stoker.__version__,
        **flux.versions(),
        "python": platform.python_version(),
    }
    if device.kind != "cpu":
        facts["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    else:
        facts["threads"] = torch.get_num_threads()
    print(f"  {json.dumps(facts)}")


if __name__ == "__main__":
    main()
