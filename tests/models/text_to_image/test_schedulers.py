"""Each scheduler of each pipeline, with the configuration that the model's publisher ships: its sigmas are
compared with those of the library's own pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.models.registry import PIPELINES, pipeline
from stoker.models.text_to_image import tiny
from tests.models.text_to_image import tiny_families
from tests.models.text_to_image.published_schedulers import DIFFUSION, FLOW

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""diffusers' schedulers, with a newer numpy."""

STEPS = 16
"""A scheduler places a sigma up to a step from euler's; one without the shift, several steps from it."""


SAME_FROM_THE_LIBRARY: dict[str, tuple[str, dict[str, Any]]] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler-a": ("EulerAncestralDiscreteScheduler", {}),
    "heun": ("HeunDiscreteScheduler", {}),
    "dpm++2m": ("DPMSolverMultistepScheduler", {}),
    "dpm++2m-karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    "dpm++2m-sde": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "unipc": ("UniPCMultistepScheduler", {}),
    "ddim": ("DDIMScheduler", {}),
}
"""The class and the arguments that the library's manual has for each name, for networks that predict
noise."""


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


def test_each_pipeline_has_a_published_configuration() -> None:
    images = {entry.name for entry in PIPELINES.values() if entry.model == "text-to-image"}
    made_here = {"flux-mini", "flux-tiny"}
    assert images - made_here == FLOW.keys() | DIFFUSION.keys()


@pytest.mark.parametrize("choice", SAME_FROM_THE_LIBRARY)
@pytest.mark.parametrize("name", DIFFUSION)
def test_each_scheduler_of_noise_is_the_librarys_own(name: str, choice: str, tmp_path: Path) -> None:
    import diffusers

    pipe, load, published = built(name, tmp_path), pipeline(name).load, DIFFUSION[name]
    library_class, more = SAME_FROM_THE_LIBRARY[choice]
    expected = getattr(diffusers, library_class).from_config(published, **more)
    own = diffusers.EulerDiscreteScheduler.from_config(published)
    found = load.schedulers[choice].made(own)  # type: ignore[union-attr]
    assert type(found) is type(expected)
    for one in (found, expected):
        started(pipe, one)
    assert found.timesteps.tolist() == expected.timesteps.tolist()
    assert found.init_noise_sigma == expected.init_noise_sigma
    assert (found.alphas_cumprod == expected.alphas_cumprod).all()
    for field in (
        "beta_schedule",
        "timestep_spacing",
        "clip_sample",
        "prediction_type",
        "set_alpha_to_one",
        "algorithm_type",
    ):
        assert found.config.get(field) == expected.config.get(field), field
    if choice == "ddim":  # it has no sigmas
        assert found.final_alpha_cumprod == expected.final_alpha_cumprod < 1
    else:
        assert found.sigmas.tolist() == expected.sigmas.tolist()


def test_every_scheduler_of_noise_is_compared() -> None:
    for name in DIFFUSION:
        assert pipeline(name).load.schedulers.keys() == SAME_FROM_THE_LIBRARY.keys()  # type: ignore[union-attr]


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
    started(pipe, scheduler, max_sequence_length=128)
    return np.unique(scheduler.sigmas.float().numpy())[::-1]


def started(pipe: Any, scheduler: Any, **more: Any) -> None:
    """Lets the library's pipeline set the scheduler's steps, up to the first of them."""

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    pipe.scheduler, scheduler.step = scheduler, stop
    pipe.set_progress_bar_config(disable=True)
    with pytest.raises(Stopped):
        pipe(prompt="a lighthouse", width=256, height=256, num_inference_steps=STEPS, **more)
    del scheduler.step
