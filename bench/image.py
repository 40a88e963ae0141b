"""Compares the hosted image model's handler with the bare diffusers pipeline, in one run.

    python bench/image.py [--side 512 --side 1024] [--steps 28] [--runs 5] [--cpu] [--json FILE]

Both make the same image with the same loaded pipeline, in turns; which one is first alternates. The handler
also does what a caller needs: checks, progress, previews, the file with its metadata. Prints seconds (median,
least and most), steps per second, the ratio of the medians, the hardware, and on a GPU the peak memory. The
environment chooses the pipeline (STOKER_PIPELINE, STOKER_WEIGHTS_DIR); the default is the best one with
weights on this machine. `others` is how many cores other processes used during the run: above 0.3, discard
the figures.

Why the ratio is above 1: a preview costs 1 ms and the file 2 ms (512 x 512) or 5 ms (1024 x 1024), while
flux-tiny takes 0.13 s and 0.75 s for the image. A slower model makes at most five previews a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measured_on import commit, cpu_name, others
from timing import timed

import stoker
from stoker.models import libraries
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device
from stoker.worker.testing import LocalJob

PROMPT = "a lighthouse on a cliff at dawn"
WARM_UPS = 2


def main() -> None:
    arguments = parse()
    device = Device() if arguments.cpu or not torch.cuda.is_available() else gpu()
    machine = machine_of(device)
    model = TextToImage()
    set_up = timed(lambda: model.setup(device))
    print(f"{model.entry.name} ({model.entry.profile}) on {machine['device']}, set-up {set_up:.1f} s")
    before = others()
    started = time.perf_counter()
    figures = [measure(model, side, arguments.steps, arguments.runs) for side in arguments.side or [1024]]
    machine["others"] = round((others() - before) / (time.perf_counter() - started), 2)
    if device.kind != "cpu":
        machine["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    print(f"  {json.dumps(machine)}")
    if arguments.json:
        found = {
            "pipeline": model.entry.name,
            "profile": model.entry.profile,
            "set_up_s": round(set_up, 2),
        }
        found |= {
            "hardware": machine,
            "versions": versions(),
            "commit": commit("../models", "../worker", "image.py"),
            "images": figures,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The image handler against the bare pipeline.")
    parser.add_argument(
        "--side", type=int, action="append", help="side of the image in pixels; may be repeated"
    )
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="even where there is a GPU")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def measure(model: TextToImage, side: int, steps: int, runs: int) -> dict[str, object]:
    job_input = {"prompt": PROMPT, "width": side, "height": side, "seed": 1, "num_inference_steps": steps}

    def by_handler() -> None:
        LocalJob(model.run, job_input).run().result()

    def bare() -> None:
        bare_pipeline(model, job_input)

    return report(side, steps, *alternate([by_handler, bare], runs))


def gpu() -> Device:
    found = torch.cuda.get_device_properties(0)
    return Device(uuid=f"GPU-{found.uuid}", kind="gpu", name=found.name)


def bare_pipeline(model: TextToImage, job_input: dict[str, Any]) -> None:
    model.pipeline.pipe(
        job_input["prompt"],
        width=job_input["width"],
        height=job_input["height"],
        num_inference_steps=job_input["num_inference_steps"],
        guidance_scale=3.5,
        max_sequence_length=model.pipeline.text_tokens,
        generator=torch.Generator("cpu").manual_seed(job_input["seed"]),
    )


def alternate(works: list[Callable[[], None]], runs: int) -> list[list[float]]:
    """Times the works in turns and in alternating order, so that a slower machine affects all alike."""
    for _ in range(WARM_UPS):
        for work in works:
            work()
    times: list[list[float]] = [[] for _ in works]
    order = list(range(len(works)))
    for _ in range(runs):
        for which in order:
            times[which].append(timed(works[which]))
        order.reverse()
    return times


def report(side: int, steps: int, handler: list[float], bare: list[float]) -> dict[str, object]:
    print(f"  {side} x {side}, {steps} steps, {len(handler)} runs")
    figures: dict[str, object] = {"side": side, "steps": steps, "runs": len(handler)}
    for name, times in (("handler", handler), ("bare", bare)):
        median, least, most = (round(f(times), 4) for f in (statistics.median, min, max))
        speed = steps / median
        print(f"    {name:8} {median:8.3f} s ({least:.3f} to {most:.3f})   {speed:8.1f} steps/s")
        figures[f"{name}_s"] = {"median": median, "least": least, "most": most}
    ratio = statistics.median(handler) / statistics.median(bare)
    print(f"    ratio    {ratio:8.3f}   (of the least: {min(handler) / min(bare):.3f})")
    return figures | {"ratio": round(ratio, 3), "ratio_of_the_least": round(min(handler) / min(bare), 3)}


def machine_of(device: Device) -> dict[str, object]:
    found: dict[str, object] = {"device": device.name, "cpu": cpu_name(), "cores": os.cpu_count()}
    found["threads"] = torch.get_num_threads()
    return found if device.kind != "cpu" else found | {"device": cpu_name()}


def versions() -> dict[str, str]:
    return {"stoker": stoker.__version__, **libraries.versions(), "python": platform.python_version()}


if __name__ == "__main__":
    main()
