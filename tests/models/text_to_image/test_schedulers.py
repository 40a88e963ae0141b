"""Each scheduler of each pipeline, with the configuration that the model's publisher ships, keeps the
pipeline's own shift: its sigmas are compared with those of the library's own pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.models.registry import pipeline
from stoker.models.text_to_image import tiny
from tests.models.text_to_image import tiny_families
from tests.models.text_to_image.published_schedulers import FLOW

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""diffusers' schedulers, with a newer numpy."""

STEPS = 16
"""A scheduler places a sigma up to a step from euler's; one without the shift, several steps from it."""


class Stopped(Exception):
    """The end of an image before its first step."""


@pytest.mark.parametrize("name", FLOW)
def test_each_scheduler_keeps_the_shift_of_the_published_one(name: str, tmp_path: Path) -> None:
    import diffusers

    pipe, load = built(name, tmp_path), pipeline(name).load
    own = diffusers.FlowMatchEulerDiscreteScheduler(**FLOW[name])
    expected = sigmas(pipe, own)
    assert len(expected) == STEPS + 1
    for choice, scheduler in load.schedulers.items():  # type: ignore[union-attr]
        found = sigmas(pipe, scheduler.made(own))
        assert len(found) == STEPS + 1, choice
        assert (found[1:] <= expected[:-1]).all(), choice
        assert (found[:-1] >= expected[1:]).all(), choice


def built(name: str, folder: Path) -> Any:
    """The library's own pipeline, with tiny weights."""
    import diffusers

    if not name.startswith("flux-1"):
        tiny_families.tokenizer_files(folder)
        return tiny_families.BUILDERS[name](folder)
    tiny.build(folder)
    return diffusers.FluxPipeline.from_pretrained(folder)


def sigmas(pipe: Any, scheduler: Any) -> Any:
    """The sigmas that the library's pipeline sets, each once."""

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    pipe.scheduler, scheduler.step = scheduler, stop
    pipe.set_progress_bar_config(disable=True)
    with pytest.raises(Stopped):
        pipe(
            prompt="a lighthouse",
            width=256,
            height=256,
            num_inference_steps=STEPS,
            max_sequence_length=128,
        )
    del scheduler.step
    return np.unique(scheduler.sigmas.float().numpy())[::-1]
