"""The check of images before they are animated and of frames before they are sent, by a classifier of
transformers and a threshold.

    <folder>/config.json, model.safetensors        any ...ForImageClassification
             preprocessor_config.json              the size, mean and deviation that it was trained with
             safety.json                           {"about", "flagged": [labels], "threshold"}

An entry of weights.lock names the classifier. The default is a test classifier: it flags only images with a
mark made for tests, and says so in its `about`. It does not protect anyone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.models.weights import alignment

DEFAULT: Final = "safety-tiny"


@dataclass(frozen=True, slots=True)
class Finding:
    """The label for which an image was flagged, and the classifier's score from 0 to 1."""

    label: str
    score: float


class SafetyChecker:
    """The classifier that checks images. `about` is its description of itself."""

    def __init__(self, model: Any, preprocessing: dict[str, Any], rules: dict[str, Any]) -> None:
        self._model, self._preprocessing = model, preprocessing
        self.about: str = rules["about"]
        self._threshold: float = rules["threshold"]
        labels = {label: number for number, label in model.config.id2label.items()}
        if unknown := set(rules["flagged"]) - set(labels):
            raise ValueError(f"safety.json flags {sorted(unknown)}; the classifier knows {sorted(labels)}")
        self._flagged = {label: labels[label] for label in rules["flagged"]}

    def check(self, pixels: NDArray[np.uint8]) -> Finding | None:
        """Returns the finding with the highest score in images (n, H, W, 3), if that score reaches the
        threshold."""
        import torch

        scaled = torch.cat([self._preprocessed(part) for part in squares(pixels)])
        with torch.inference_mode():
            scores = self._model(pixel_values=scaled).logits.float().softmax(dim=-1).amax(dim=0).cpu()
        found = [Finding(label, float(scores[number])) for label, number in self._flagged.items()]
        worst = max(found, key=lambda finding: finding.score)
        return worst if worst.score >= self._threshold else None

    def _preprocessed(self, pixels: NDArray[np.uint8]) -> Any:
        """Returns the pixels in the classifier's size and scale."""
        import torch

        size = (self._preprocessing["size"]["height"], self._preprocessing["size"]["width"])
        mean, deviation = (
            torch.tensor(self._preprocessing[key]).view(3, 1, 1) for key in ("image_mean", "image_std")
        )
        frames = torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 255.0
        small = torch.nn.functional.interpolate(frames, size=size, mode="bilinear", antialias=True)
        return ((small - mean) / deviation).to(self._model.device, self._model.dtype)


def squares(pixels: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Cuts images (n, H, W, 3) into squares of their shorter side, from edge to edge, at most half a side
    apart. Scaled as a whole into one square, a long image would lose its small details."""
    height, width = pixels.shape[1:3]
    side = min(height, width)
    for top in _starts(height, side):
        for left in _starts(width, side):
            yield pixels[:, top : top + side, left : left + side]


def _starts(length: int, side: int) -> list[int]:
    steps = math.ceil(2 * (length - side) / side)
    return [round(step * (length - side) / steps) for step in range(steps)] + [length - side]


def load(folder: Path, device: str) -> SafetyChecker:
    """Loads a checker from a verified folder. Raises ValueError if its files contradict each other."""
    import transformers

    model = transformers.AutoModelForImageClassification.from_pretrained(folder, local_files_only=True)
    preprocessing = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    rules = json.loads((folder / "safety.json").read_text(encoding="utf-8"))
    model = model.to(device).eval()
    alignment.align(model)
    return SafetyChecker(model, preprocessing, rules)


def build(folder: Path) -> None:
    """Writes the default checker's files. `training/safety_checker.py` made them in `safety_tiny`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (Path(__file__).parent / "safety_tiny").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
