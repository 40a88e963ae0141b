"""Looks at pictures before they are animated or given out: an image classifier of transformers, and a
threshold.

    <folder>/config.json, model.safetensors        any ...ForImageClassification
             preprocessor_config.json              the size, mean and deviation that it was trained with
             safety.json                           {"about", "flagged": [labels], "threshold"}

Which classifier it is, an entry of weights.lock says. The default is a test classifier: it flags pictures
that bear a mark made for tests and nothing else, and says so in its `about`. It protects nobody.
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

__all__ = ["DEFAULT", "Finding", "SafetyChecker", "build", "load", "squares"]

DEFAULT: Final = "safety-tiny"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a picture was flagged for, and how sure the classifier is, from 0 to 1."""

    label: str
    score: float


class SafetyChecker:
    """`about` is what the classifier says of itself."""

    def __init__(self, model: Any, look: dict[str, Any], rules: dict[str, Any]) -> None:
        self._model, self._look = model, look
        self.about: str = rules["about"]
        self._threshold: float = rules["threshold"]
        labels = {label: number for number, label in model.config.id2label.items()}
        if unknown := set(rules["flagged"]) - set(labels):
            raise ValueError(f"safety.json flags {sorted(unknown)}; the classifier knows {sorted(labels)}")
        self._flagged = {label: labels[label] for label in rules["flagged"]}

    def look(self, pixels: NDArray[np.uint8]) -> Finding | None:
        """Of pictures (n, H, W, 3), the worst finding at or over the threshold."""
        import torch

        seen = torch.cat([self._seen(part) for part in squares(pixels)])
        with torch.inference_mode():
            sure = self._model(pixel_values=seen).logits.float().softmax(dim=-1).amax(dim=0).cpu()
        found = [Finding(label, float(sure[number])) for label, number in self._flagged.items()]
        worst = max(found, key=lambda finding: finding.score)
        return worst if worst.score >= self._threshold else None

    def _seen(self, pixels: NDArray[np.uint8]) -> Any:
        """In the classifier's size and scale."""
        import torch

        size = (self._look["size"]["height"], self._look["size"]["width"])
        mean, deviation = (torch.tensor(self._look[key]).view(3, 1, 1) for key in ("image_mean", "image_std"))
        frames = torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 255.0
        small = torch.nn.functional.interpolate(frames, size=size, mode="bilinear", antialias=True)
        return ((small - mean) / deviation).to(self._model.device, self._model.dtype)


def squares(pixels: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Pictures (n, H, W, 3) in squares of their shorter side, from edge to edge, each half a side from the
    next at most. Squeezed whole into one, a long picture would lose what is small in it."""
    height, width = pixels.shape[1:3]
    side = min(height, width)
    for top in _starts(height, side):
        for left in _starts(width, side):
            yield pixels[:, top : top + side, left : left + side]


def _starts(length: int, side: int) -> list[int]:
    steps = math.ceil(2 * (length - side) / side)
    return [round(step * (length - side) / steps) for step in range(steps)] + [length - side]


def load(folder: Path, device: str) -> SafetyChecker:
    """From a verified folder. Raises ValueError where its files do not fit each other."""
    import transformers

    model = transformers.AutoModelForImageClassification.from_pretrained(folder, local_files_only=True)
    look = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    rules = json.loads((folder / "safety.json").read_text(encoding="utf-8"))
    return SafetyChecker(model.to(device).eval(), look, rules)


def build(folder: Path) -> None:
    """The default's files, which lie in this package: trained by `safety_training`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (Path(__file__).parent / "safety_tiny").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
