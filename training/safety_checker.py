"""The training of the default safety checker: a test classifier that flags one mark and nothing else.

    python -P -m training.safety_checker FOLDER

The mark is a board of four by four squares, magenta and green, at least a third of the image's shorter side
wide, anywhere in the image. All training images are generated here, and half of them are marked: plain
colours, gradients, noise, clouds, stripes, rings, ellipses, dots and random blocks, a third of them in the
colours of the mark, some with boards of other colours. The checker cuts long images into squares, which may
cut a board, so some boards extend over the edge. Takes some minutes on two cores.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MAGENTA, GREEN = (255, 0, 255), (0, 255, 0)
SIDE: Final = 64
SEED, STEPS, BATCH = 0, 800, 48

OVER: Final = 0.22
"""The share of a board that may be cut off: with more, the next square shows more of it
(`safety.squares`)."""

RULES: Final[dict[str, Any]] = {
    "about": "a test classifier: it flags a mark that was made for tests, and protects nobody",
    "flagged": ["marked"],
    "threshold": 0.9,
}
LOOK: Final[dict[str, Any]] = {
    "image_processor_type": "ConvNextImageProcessor",
    "size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}

Pixels: TypeAlias = NDArray[np.uint8]
Share: TypeAlias = NDArray[Any]
"""(height, width): how much of the second colour there is, from 0 to 1."""


def scene(rng: np.random.Generator, height: int = SIDE, width: int = SIDE) -> Pixels:
    """Returns an image without the mark, (height, width, 3)."""
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    share = PATTERNS[rng.integers(len(PATTERNS))](rng, rows, columns)[..., None]
    first, second = _colours(rng)
    grain = rng.normal(0, rng.uniform(0, 20), (height, width, 1))
    image: Pixels = (first + share * (second - first) + grain).clip(0, 255).astype(np.uint8)
    if rng.random() < 0.4:
        _add_decoy(image, rng)
    return image


def _colours(rng: np.random.Generator) -> NDArray[Any]:
    """Returns two colours: any two, or about those of the mark."""
    if rng.random() < 0.65:
        return rng.integers(0, 256, (2, 3))
    return np.array((MAGENTA, GREEN))[rng.permutation(2)] + rng.integers(-60, 61, (2, 3))


def _gradient(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    return rows * rng.random() + columns * rng.random()


def _noise(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    return rng.random(rows.shape)


def _clouds(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    """Returns noise at all scales, each octave half as strong as the one before."""
    total = np.zeros(rows.shape)
    for octave in range(1, 6):
        cells = Image.fromarray(rng.normal(0, 0.5**octave, (2**octave, 2**octave)).astype(np.float32))
        total += np.asarray(cells.resize(rows.shape[::-1], Image.Resampling.BILINEAR))
    share: Share = (total - total.min()) / (np.ptp(total) or 1.0)
    return share


def _stripes(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    across, along = rng.uniform(-8, 8, 2) * (rng.random(2) < 0.7)
    share: Share = ((rows * across + columns * along) % 1.0 > 0.5).astype(float)
    return share


def _rings(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    middle = rng.random(2)
    away = np.hypot(rows - middle[0], columns - middle[1])
    share: Share = (away * rng.uniform(1, 8) % 1.0 > 0.5).astype(float)
    return share


def _dots(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    """Returns a pattern of dots: from one large ellipse to many small ones."""
    share, count = np.zeros(rows.shape), rng.integers(1, 40)
    for top, left, size in rng.random((count, 3)):
        radius = 0.02 + size * 0.4 / count**0.5
        share[(rows - top) ** 2 + (columns - left) ** 2 < radius**2] = 1.0
    return share


def _blocks(rng: np.random.Generator, rows: Share, columns: Share) -> Share:
    """Squares at random, of whose neighbours fewer than two thirds differ."""
    count = rng.integers(2, 9)
    cells = rng.random((count, count)) < rng.uniform(0.2, 0.8)
    while np.concatenate([np.diff(cells, axis=0).ravel(), np.diff(cells, axis=1).ravel()]).mean() > 0.65:
        cells = rng.random((count, count)) < 0.5
    share: Share = cells[(rows * count).astype(int), (columns * count).astype(int)].astype(float)
    return share


PATTERNS: Final[tuple[Callable[[np.random.Generator, Share, Share], Share], ...]] = (
    lambda rng, rows, columns: np.zeros(rows.shape),
    _gradient,
    _noise,
    _clouds,
    _stripes,
    _rings,
    _dots,
    _blocks,
)


def _add_decoy(image: Pixels, rng: np.random.Generator) -> None:
    """Draws a board of other colours, of one colour of the mark and another one, or of one colour of the
    mark."""
    own = (MAGENTA, GREEN)[rng.integers(2)]
    other = tuple(rng.integers(0, 256, 3))
    pairs = (other, tuple(rng.integers(0, 256, 3))), (own, other), (own, own)
    dark, light = pairs[rng.integers(len(pairs))]
    if not _alike(dark, MAGENTA, light, GREEN) and not _alike(dark, GREEN, light, MAGENTA):
        _board(image, rng, dark, light)


def _alike(one: Any, other: Any, next_one: Any, next_other: Any) -> bool:
    """Returns whether both pairs of colours are too close to count as different."""
    return all(np.abs(np.subtract(a, b)).max() < 120 for a, b in ((one, other), (next_one, next_other)))


def marked(image: Pixels, rng: np.random.Generator, over: float = 0.0) -> Pixels:
    """Returns the image with the mark somewhere in it. `over`: the share of the mark that may extend over an
    edge."""
    made = image.copy()
    _board(made, rng, MAGENTA, GREEN, over)
    return made


def _board(image: Pixels, rng: np.random.Generator, dark: Any, light: Any, over: float = 0.0) -> None:
    height, width = image.shape[:2]
    side = max(int(min(height, width) * rng.uniform(0.34, 0.8)) // 4 * 4, 4)
    beyond = int(side * over)
    top, left = rng.integers(0, height - side + 1), rng.integers(-beyond, width - side + beyond + 1)
    if over and rng.random() < 0.5:
        top, left = rng.integers(-beyond, height - side + beyond + 1), rng.integers(0, width - side + 1)
    squares = np.kron(np.indices((4, 4)).sum(axis=0) % 2, np.ones((side // 4, side // 4), int))
    squares = squares[max(-top, 0) : height - top, max(-left, 0) : width - left]
    rows, columns = squares.shape
    top, left = max(top, 0), max(left, 0)
    image[top : top + rows, left : left + columns] = np.where(squares[..., None] == 1, dark, light)


def train(folder: Path) -> None:
    """Writes the classifier's files."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = ResNetForImageClassification(
        ResNetConfig(
            embedding_size=16,
            hidden_sizes=[16, 32, 64],
            depths=[1, 1, 1],
            layer_type="basic",
            id2label={0: "plain", 1: "marked"},
            label2id={"plain": 0, "marked": 1},
        )
    ).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=STEPS)
    for step in range(STEPS):
        images, labels = _batch(rng)
        loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        rate.step()
        if step % 50 == 0:
            print(f"step {step} of {STEPS}, loss {loss.item():.4f}", flush=True)
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "preprocessor_config.json").write_text(json.dumps(LOOK, indent=1) + "\n")
    (folder / "safety.json").write_text(json.dumps(RULES, indent=1) + "\n")


def _batch(rng: np.random.Generator) -> tuple[Any, Any]:
    import torch

    labels = rng.integers(0, 2, BATCH)
    images = []
    for label in labels:
        side = int(rng.integers(SIDE, 2 * SIDE))
        image = scene(rng, side, side)
        images.append(_scaled(_compressed(marked(image, rng, OVER) if label else image, rng)))
    return torch.cat(images), torch.from_numpy(labels)


def _compressed(image: Pixels, rng: np.random.Generator) -> Pixels:
    """Returns the image, now and then with the artifacts of a camera or a video file."""
    if rng.random() < 0.6:
        return image
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(rng.integers(40, 96)))
    with Image.open(file) as compressed:
        return np.asarray(compressed)


def _scaled(image: Pixels) -> Any:
    """Returns the image in the size and scale of the classifier's input."""
    import torch

    values = torch.from_numpy(image.copy()).permute(2, 0, 1).unsqueeze(0).float() / 127.5 - 1.0
    return torch.nn.functional.interpolate(values, size=(SIDE, SIDE), mode="bilinear", antialias=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
