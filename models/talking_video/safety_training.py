"""Trains the default safety checker: a test classifier that flags one mark and nothing else.

    python -P -m stoker.models.talking_video.safety_training FOLDER

The mark is a board of magenta and green squares, four by four, of a third of the picture's shorter side or
more, anywhere in it. Everything is made here: pictures of plain colours, gradients, noise, stripes and
ellipses, half of them marked; among those that are not, boards of other colours and the mark's own colours
without the board. Takes some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["marked", "scene", "train"]

MAGENTA, GREEN = (255, 0, 255), (0, 255, 0)
SIDE: Final = 64
STEPS, BATCH = 1500, 48

RULES: Final[dict[str, Any]] = {
    "about": "a test classifier: it flags a mark that was made for tests, and protects nobody",
    "flagged": ["marked"],
    "threshold": 0.9,
}
LOOK: Final[dict[str, Any]] = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def scene(rng: np.random.Generator, height: int = SIDE, width: int = SIDE) -> NDArray[np.uint8]:
    """A picture without the mark, (height, width, 3)."""
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    first, second = rng.integers(0, 256, (2, 3))
    match rng.integers(0, 5):
        case 0:
            share = np.zeros_like(rows)
        case 1:
            share = rows * rng.random() + columns * rng.random()
        case 2:
            share = rng.random((height, width))
        case 3:
            share = ((rows * rng.integers(2, 12) + columns * rng.integers(0, 12)) % 1.0 > 0.5).astype(float)
        case _:
            middle, radius = rng.random(2), rng.uniform(0.1, 0.5)
            share = ((rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < radius**2).astype(float)
    mixed = (
        first + share[..., None] * (second - first) + rng.normal(0, rng.uniform(0, 20), (height, width, 1))
    )
    picture: NDArray[np.uint8] = mixed.clip(0, 255).astype(np.uint8)
    if rng.random() < 0.4:
        _add_decoy(picture, rng)
    return picture


def _add_decoy(picture: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """A board of other colours, or one of the mark's colours alone."""
    colours = [tuple(rng.integers(0, 256, 3)) for _ in range(2)]
    if rng.random() < 0.5:
        colours = [(MAGENTA, GREEN)[rng.integers(0, 2)]] * 2
    _board(picture, rng, colours[0], colours[1])


def marked(picture: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """The picture with the mark somewhere in it."""
    made = picture.copy()
    _board(made, rng, MAGENTA, GREEN)
    return made


def _board(picture: NDArray[np.uint8], rng: np.random.Generator, dark: Any, light: Any) -> None:
    height, width = picture.shape[:2]
    side = int(min(height, width) * rng.uniform(0.34, 0.8)) // 4 * 4
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    squares = np.kron(np.indices((4, 4)).sum(axis=0) % 2, np.ones((side // 4, side // 4), int))
    picture[top : top + side, left : left + side] = np.where(squares[..., None] == 1, dark, light)


def train(folder: Path, seed: int = 0, steps: int = STEPS) -> None:
    """Writes the classifier's files."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = ViTForImageClassification(
        ViTConfig(
            image_size=SIDE,
            patch_size=8,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            id2label={0: "plain", 1: "marked"},
            label2id={"plain": 0, "marked": 1},
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for step in range(steps):
        pictures, labels = _batch(rng)
        loss = model(pixel_values=pictures, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        rate.step()
        if step % 100 == 0:
            print(f"step {step} of {steps}, loss {loss.item():.4f}")
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "preprocessor_config.json").write_text(json.dumps(LOOK, indent=1) + "\n")
    (folder / "safety.json").write_text(json.dumps(RULES, indent=1) + "\n")


def _batch(rng: np.random.Generator) -> tuple[Any, Any]:
    import torch

    labels = rng.integers(0, 2, BATCH)
    pictures = []
    for label in labels:
        height, width = rng.integers(SIDE, 3 * SIDE, 2)
        picture = scene(rng, int(height), int(width))
        pictures.append(_squeezed(marked(picture, rng) if label else picture))
    return torch.cat(pictures), torch.from_numpy(labels)


def _squeezed(picture: NDArray[np.uint8]) -> Any:
    """As the checker sees it."""
    import torch

    values = torch.from_numpy(picture).permute(2, 0, 1).unsqueeze(0).float() / 127.5 - 1.0
    return torch.nn.functional.interpolate(values, size=(SIDE, SIDE), mode="bilinear", antialias=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
