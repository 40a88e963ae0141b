"""The measurement at set-up whether batches pay: whole jobs, alone and in batches, from the smallest size
upwards.

It stops at the first size at which none pays: the larger the images, the less a batch saves. Where a batch
does not fit into the device's memory, larger ones are not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stoker.models.interface import BatchPipeline, ImageParameters, PipelineEntry, Step
from stoker.models.speed_ups import profiles
from stoker.models.text_to_image.batching.gain import Batching, Times, best, decide, job_seconds
from stoker.worker.between_jobs.device_cache import empty_cache

if TYPE_CHECKING:
    from PIL import Image

SIDES: Final = (256, 512, 768, 1024)
COUNTS: Final = (2, 4, 8)
_STEPS: Final = 3
_RUNS: Final = 2
_PROMPTS: Final = ("a red flower on a table", "the sea at night")


def measure(pipeline: Any, entry: PipelineEntry, clock: Callable[[], float] = time.perf_counter) -> Batching:
    """Measures whether batches pay. Never raises for a batch that fails: then all images are made alone."""
    if not hasattr(pipeline, "generate_batch"):
        return Batching("the pipeline makes one image at a time")
    if name := profiles.makes_alone(getattr(pipeline, "speed_ups", ())):
        return Batching(f"with {name} an image would depend on the others of its batch")
    import torch

    found: list[Times] = []
    differ = 0.0
    for side in SIDES:
        try:
            times, levels = _times(pipeline, _images(entry, side), entry.defaults.steps, clock)
        except torch.OutOfMemoryError as error:  # for one image
            empty_cache(error)
            break
        except Exception as error:  # the library's, whatever it may be: jobs go on alone
            empty_cache(error)
            return Batching(f"a batch of {side} x {side} fails: {type(error).__name__}: {error}")
        found.append(times)
        differ = max(differ, levels)
        if best(times) == 1:
            break
    return decide(found, differ)


def _images(entry: PipelineEntry, side: int) -> list[ImageParameters]:
    """Returns as many images as the largest batch has."""
    first = ImageParameters(
        _PROMPTS[0],
        side,
        side,
        steps=_STEPS,
        seed=0,
        guidance=entry.defaults.guidance,
        more={name: rule.get("default") for name, rule in entry.inputs.items()},
    )
    return [replace(first, prompt=_PROMPTS[seed % 2], seed=seed) for seed in range(max(COUNTS))]


def _times(
    pipeline: BatchPipeline, images: Sequence[ImageParameters], steps: int, clock: Callable[[], float]
) -> tuple[Times, float]:
    """Returns the times of one size, and by how many levels images in a batch differ from those made
    alone."""
    import torch

    alone_s, [first] = _job(pipeline, images[:1], steps, clock)
    _, [second] = _job(pipeline, images[1:2], steps, clock)
    batch_s: dict[int, float] = {}
    differ = 0.0
    for count in COUNTS:
        try:
            batch_s[count], made = _job(pipeline, images[:count], steps, clock)
        except torch.OutOfMemoryError as error:
            empty_cache(error)
            break
        differ = max(differ, _levels(first, made[0]), _levels(second, made[1]))
        if batch_s[count] / count > min(batch_s[fewer] / fewer for fewer in batch_s):
            break
    return Times(images[0].width, alone_s, batch_s), differ


def _job(
    pipeline: BatchPipeline, images: Sequence[ImageParameters], steps: int, clock: Callable[[], float]
) -> tuple[float, list[Image.Image]]:
    """Returns the seconds of the faster of two runs, which leaves out what only the first does, and the
    images."""
    runs_s = []
    for _ in range(_RUNS):
        marks_s = [clock()]

        def on_step(number: int, step: Step, marks_s: list[float] = marks_s) -> None:
            if number == 0:
                float(step.estimate().sum())  # waits for the device
                marks_s.append(clock())

        made = pipeline.generate_batch(images, on_step)
        runs_s.append(job_seconds([*marks_s, clock()], steps))
    return min(runs_s), made


def _levels(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32)).mean())
