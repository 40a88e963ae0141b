"""Pictures of flux-tiny as numbers, for comparing one pipeline with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.models.interface import ImageDefaults, ImageParameters, Step
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.text_to_image.families.flux import Flux

DEFAULTS = ImageDefaults(steps=12, guidance=3.5)


def flux(folder: Path, profile: str = "exact") -> Flux:
    return Flux(folder, "cpu", text_tokens=128, profile=profile)


def loaded(pipeline: Flux, **more: Any) -> Loaded:
    """What a speed-up is applied to, on the CPU."""
    return Loaded(
        pipeline.pipe.transformer, pipeline.pipe.vae, "cpu", pipeline.pipe, **({"steps": 12} | more)
    )


def picture(pipeline: Flux, width: int = 256, height: int = 256, steps: int = 4, seed: int = 1) -> Any:
    def on_step(step: Step) -> None:
        pass

    parameters = ImageParameters("a lighthouse", width, height, steps, seed, guidance=3.5)
    found: NDArray[np.int64] = np.asarray(pipeline.generate(parameters, on_step)).astype(int)
    return found


def most(first: Any, second: Any) -> int:
    """The largest difference of two 8-bit pictures."""
    return int(abs(first - second).max())
