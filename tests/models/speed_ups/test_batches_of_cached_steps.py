"""Step caches where several jobs come at once: each job gets the image that it gets alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.models.interface import ImageParameters
from stoker.models.registry import PIPELINES
from stoker.models.speed_ups import profiles, step_caches
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.text_to_image.batching import measured
from stoker.models.text_to_image.batching.batches import Batches
from tests.models.speed_ups.pictures import DEFAULTS, loaded
from tests.models.speed_ups.pictures import flux as flux_of

PROMPTS = ("a red flower on a table", "the sea at night", "a lighthouse", "a fox in the snow")
IMAGES = [ImageParameters(prompt, 256, 256, 12, seed, guidance=3.5) for seed, prompt in enumerate(PROMPTS)]


def alone(flux: Any) -> list[Any]:
    return [np.asarray(flux.generate(one, lambda step: None)).astype(int) for one in IMAGES]


def test_under_fast_jobs_that_come_together_get_what_they_get_alone(tiny_folder: Path) -> None:
    flux = flux_of(tiny_folder, "fast")
    flux.warm([(256, 256)], DEFAULTS)
    found = measured.measure(flux, PIPELINES["flux-tiny"])
    assert found.reason == "with first-block-cache an image would depend on the others of its batch"
    batches = Batches(flux, found)
    assert batches.slots() == 1

    def made(image: ImageParameters) -> tuple[Any, int]:
        return batches.make(image, lambda step: None, lambda: None, alone=False)

    with ThreadPoolExecutor(len(IMAGES)) as pool:
        together = list(pool.map(made, IMAGES))
    assert [count for _, count in together] == [1] * len(IMAGES)
    for (image, _), expected in zip(together, alone(flux), strict=True):
        assert np.array_equal(np.asarray(image), expected)


@pytest.mark.parametrize("cache", [step_caches.mag_cache, step_caches.taylor_seer])
def test_caches_that_count_steps_decide_the_same_for_a_batch(
    flux: Any, cache: Callable[[Loaded], str]
) -> None:
    cache(loaded(flux))
    together = flux.generate_batch(IMAGES, lambda number, step: None)
    for image, expected in zip(together, alone(flux), strict=True):
        assert abs(np.asarray(image) - expected).max() <= 1
    assert not profiles.makes_alone(["mag-cache", "taylor-seer", "prompt-cache", "a stranger's"])
