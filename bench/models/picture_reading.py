"""Reads a picture of `flux-mini` without its networks: how many objects it shows, where, in which colours,
and which objects they are.

    pixels, the name of the background ──> what differs from that background ──> connected parts: objects
        position   the middle of a part
        colour     the median of its pixels, away from its rim
        object     a small network, trained apart on drawings of the same icons: `icon_classifier.safetensors`

    python bench/models/picture_reading.py --train 4      (minutes; needs qtawesome, as training does)
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from stoker.models.text_to_image.mini.vocabulary import COLOURS, DRAWABLES

sys.path.append(str(Path(__file__).parents[2]))
from training.flux_mini import drawing, scenes

CLASSIFIER = Path(__file__).parent / "icon_classifier.safetensors"
SIDE = 256
"""The longer side of the picture in which objects are looked for."""
CROP = 48
DIFFERENT = 48.0
"""The distance of two colours from which they count as different."""
HORIZON = 4
LEAST = 0.002
"""The part of the picture that an object has at least; the stars of a night are smaller."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Seen:
    """`x`, `y`: the middle, as parts of the width and of the height."""

    x: float
    y: float
    colour: str
    name: str


class Classifier(nn.Sequential):
    """(n, 3, CROP, CROP) to a score for each drawable."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((3, 24), (24, 48), (48, 72), (72, 96)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(
            *layers, nn.Flatten(), nn.Linear(96 * 9, 128), nn.ReLU(), nn.Linear(128, len(DRAWABLES))
        )


def objects(
    pixels: NDArray[np.uint8], empty: NDArray[np.uint8]
) -> list[tuple[tuple[int, int, int, int], Mask]]:
    """The box (left, top, right, bottom) of each object before an empty background, and which pixels of the
    whole are its. A horizon may lie some rows higher or lower."""
    true, distances = pixels.astype(np.float32), list[NDArray[np.floating[Any]]]()
    for rows in range(-HORIZON, HORIZON + 1):
        moved = np.roll(empty, rows, axis=0).astype(np.float32)
        distances.append(np.linalg.norm(true - moved, axis=2))
    differs = np.min(distances, axis=0) > DIFFERENT
    found = []
    for part in parts(grown(differs)):
        mask = part & differs
        if mask.sum() >= LEAST * mask.size:
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            found.append(((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1), mask))
    return found


def plain(background: str, width: int, height: int) -> Image.Image:
    """The background without what is scattered over it."""
    if background in COLOURS:
        return drawing.background(background, width, height, random.Random(0))
    return drawing.gradient(drawing.SKIES[background], width, height)


def grown(mask: Mask) -> Mask:
    """With the gaps closed that divide the parts of one icon: 1 % of the side."""
    reach = 2 * math.ceil(0.006 * max(mask.shape)) + 1
    wide = functional.max_pool2d(torch.from_numpy(mask)[None, None].float(), reach, 1, reach // 2)
    return wide[0, 0].numpy() > 0


def parts(mask: Mask) -> list[Mask]:
    """The connected parts of a mask, at half its size: each pixel takes the largest number around it, until
    nothing changes."""
    inside = functional.max_pool2d(torch.from_numpy(mask)[None, None].float(), 2, ceil_mode=True)[0, 0]
    labels = torch.arange(1, inside.numel() + 1, dtype=torch.float32).reshape(inside.shape) * inside
    while True:
        spread = functional.max_pool2d(labels[None, None], 3, 1, 1)[0, 0] * inside
        if torch.equal(spread, labels):
            break
        labels = spread
    wide = labels.repeat_interleave(2, 0).repeat_interleave(2, 1)[: mask.shape[0], : mask.shape[1]]
    return [(wide == number).numpy() for number in labels.unique().tolist() if number]


def colour_of(pixels: NDArray[np.uint8], mask: Mask) -> str:
    inner = -functional.max_pool2d(-torch.from_numpy(mask)[None, None].float(), 5, 1, 2)[0, 0].numpy() > 0
    chosen = pixels[inner if inner.sum() > 40 else mask].astype(np.float32)
    near = np.stack([np.linalg.norm(chosen - np.array(value), axis=1) for value in COLOURS.values()])
    return list(COLOURS)[np.bincount(near.argmin(axis=0), minlength=len(COLOURS)).argmax()]


def crop(image: Image.Image, box: tuple[int, int, int, int]) -> torch.Tensor:
    """A square around the box, in the size that the classifier reads."""
    left, top, right, bottom = box
    half = 0.54 * max(right - left, bottom - top)
    x, y = (left + right) / 2, (top + bottom) / 2
    area = (round(x - half), round(y - half), round(x + half), round(y + half))
    part = image.crop(area).resize((CROP, CROP), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(part).copy()).permute(2, 0, 1).float() / 127.5 - 1


def smaller(image: Image.Image) -> Image.Image:
    scale = SIDE / max(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    return image if scale >= 1 else image.resize(size, Image.Resampling.BOX)


def read(image: Image.Image, background: str, classifier: Classifier) -> list[Seen]:
    """Everything that the picture shows before this background."""
    empty = np.asarray(smaller(plain(background, image.width, image.height)))
    image = smaller(image.convert("RGB"))
    pixels = np.asarray(image)
    found = []
    for box, mask in objects(pixels, empty):
        with torch.inference_mode():
            best = int(classifier(crop(image, box)[None]).argmax())
        x, y = (box[0] + box[2]) / 2 / image.width, (box[1] + box[3]) / 2 / image.height
        found.append(Seen(x, y, colour_of(pixels, mask), DRAWABLES[best].name))
    return found


def load() -> Classifier:
    classifier = Classifier()
    classifier.load_state_dict(load_file(CLASSIFIER))
    return classifier.eval()


def example(rng: random.Random) -> tuple[torch.Tensor, int]:
    """A crop of a drawn object as `read` makes them, a little blurred at random, and which object it is."""
    one = scenes.group(rng, background := scenes.scene(rng).background, "")
    image = drawing.background(background, SIDE, SIDE, rng)
    side = rng.randint(40, 220)
    box = scenes.Box(rng.randint(side // 2, SIDE - side // 2), rng.randint(side // 2, SIDE - side // 2), side)
    drawing.place(image, one.drawable.icon, COLOURS[one.colour], box)
    left, top, right, bottom = drawing.masks(one.drawable.icon)[1].getbbox() or (0, 0, 1, 1)
    scale, x, y = side / drawing.MASTER, box.x - side / 2, box.y - side / 2
    moved = [rng.uniform(-0.04, 0.04) * side for _ in range(4)]
    edges = (x + left * scale, y + top * scale, x + right * scale, y + bottom * scale)
    found = crop(image, tuple(round(edge + by) for edge, by in zip(edges, moved, strict=True)))  # type: ignore[arg-type]
    if rng.random() < 0.5:
        small = functional.interpolate(found[None], scale_factor=rng.uniform(0.35, 0.8), mode="area")
        found = functional.interpolate(small, size=(CROP, CROP), mode="bilinear")[0]
    return found, DRAWABLES.index(one.drawable)


def examples(rng: random.Random, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    found = [example(rng) for _ in range(number)]
    return torch.stack([image for image, _ in found]), torch.tensor([name for _, name in found])


def train(minutes: float) -> None:
    torch.manual_seed(0)
    classifier, rng = Classifier(), random.Random(0)
    optimizer = torch.optim.AdamW(classifier.parameters(), 1e-3)
    crops, names = examples(rng, 6000)
    began = time.monotonic()
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        chosen = torch.randint(len(crops), (64,))
        noisy = crops[chosen] + 0.1 * torch.rand(()) * torch.randn(64, 3, CROP, CROP)
        loss = functional.cross_entropy(classifier(noisy), names[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - done)
        optimizer.step()
    crops, names = examples(random.Random(1), 500)
    with torch.inference_mode():
        right = (classifier.eval()(crops).argmax(1) == names).float().mean().item()
    save_file({name: value.half() for name, value in classifier.state_dict().items()}, CLASSIFIER)
    print(f"{right:.1%} of unseen drawings are recognized")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=float, required=True, metavar="MINUTES")
    train(parser.parse_args().train)
