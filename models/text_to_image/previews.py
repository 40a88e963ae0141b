"""Thumbnails while the image is being made: one small matrix turns latents into colours.

    rgb = W · latents + b        one pixel for each latent pixel, 29 µs for 128 x 128

W and b are fitted at set-up by least squares to images that the pipeline makes, so any latents will do; a
pipeline whose weights never change has them in a file. A preview shows positions and hues, without detail.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stoker.models.interface import ImageParameters, ImagePipeline, PipelineEntry, Step

if TYPE_CHECKING:
    import torch


INTERVAL_S: Final = 0.2
"""The minimum time between previews; the first and the last step always get one."""

_LONG_SIDE = 128
_QUALITY = 70
_FIT_PROMPTS = ("a red flower on a table", "the sea at night", "a green field in the sun", "a portrait")
_FIT_SIDE = 512
_FIT_STEPS = 4


@dataclass(frozen=True, slots=True)
class Previewer:
    """The matrix that turns latents into previews. `weights` has a row for each latent channel and a last row
    for b; colours are in [-1, 1]."""

    weights: NDArray[np.float64]

    def chunk(self, step: Step) -> dict[str, Any]:
        """Returns the partial output for one step: a JPEG in base64, its size, and the step of how many."""
        image = self.image(step.estimate())
        file = io.BytesIO()
        image.save(file, "JPEG", quality=_QUALITY)
        return {
            "preview": {
                "step": step.number,
                "steps": step.of,
                "format": "jpeg",
                "width": image.width,
                "height": image.height,
                "data": base64.b64encode(file.getvalue()).decode("ascii"),
            }
        }

    def image(self, latents: torch.Tensor) -> Image.Image:
        """Returns the image of latents (see `Step`). Its long side has 128 pixels, or the latents' size if
        that is more."""
        pixels = _rows(latents) @ self.weights[:-1] + self.weights[-1]
        height, width = latents.shape[-2:]
        colours = np.nan_to_num((pixels + 1) * 127.5).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(colours.reshape(height, width, 3))
        enlarge = _LONG_SIDE / max(height, width)
        if enlarge <= 1:
            return image
        return image.resize((round(width * enlarge), round(height * enlarge)), Image.Resampling.BICUBIC)


class Throttle:
    """The choice of the steps that get a preview. Time is passed in."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._last: float | None = None

    def due(self, step: Step, now: float) -> bool:
        if self._last is not None and step.number < step.of and now - self._last < self._interval_s:
            return False
        self._last = now
        return True


def of(pipeline: ImagePipeline, entry: PipelineEntry) -> Previewer:
    """Returns the previewer of a pipeline: by the matrix in its `preview_matrix`, a file, or by a fit."""
    path: Path | None = getattr(pipeline, "preview_matrix", None)
    return fit(pipeline, entry) if path is None else Previewer(np.array(json.loads(path.read_bytes())))


def fit(pipeline: ImagePipeline, entry: PipelineEntry) -> Previewer:
    """Makes a few small images, which also warms the pipeline up, and fits the matrix to them."""
    latents, colours = [], []
    for seed, prompt in enumerate(_FIT_PROMPTS):
        steps: list[Step] = []
        parameters = ImageParameters(
            prompt,
            _FIT_SIDE,
            _FIT_SIDE,
            steps=_FIT_STEPS,
            seed=seed,
            guidance=entry.defaults.guidance,
            more={name: rule.get("default") for name, rule in entry.inputs.items()},
        )
        image = pipeline.generate(parameters, steps.append)
        last = steps[-1].estimate()
        small = image.resize((last.shape[-1], last.shape[-2]), Image.Resampling.BOX)
        latents.append(_rows(last))
        colours.append(np.asarray(small, np.float64).reshape(-1, 3) / 127.5 - 1)
    known = np.concatenate(latents)
    known = np.concatenate([known, np.ones((len(known), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(known, np.concatenate(colours), rcond=None)
    return Previewer(np.asarray(weights, np.float64))


def _rows(latents: torch.Tensor) -> NDArray[np.float64]:
    """Converts (1, channels, rows, columns) to one row of channels for each pixel."""
    return latents[0].flatten(1).T.double().cpu().numpy()
