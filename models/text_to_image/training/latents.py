"""Makes scenes with their latents, for the transformer to train on, until the time is over.

    python -m stoker.models.text_to_image.training.latents FOLDER --minutes 20

The autoencoder is that of `mini/trained`. A shard has scenes of one size. This may run beside the training,
which looks for new shards.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.weights import TRAINED
from stoker.models.text_to_image.training.autoencoder import as_tensor
from stoker.models.text_to_image.training.drawing import draw
from stoker.models.text_to_image.training.scenes import Scene, scene

UNIT: Final = 64
"""The sides of pictures are multiples of this, in pixels."""

SMALL: Final = "4x4 4x4 4x4 6x6 6x6 8x8 8x8 8x8 6x4 4x6 8x4 4x8 8x6 6x8"
MEDIUM: Final = "10x10 12x12 12x12 16x16 16x16 16x16 12x8 8x12 16x9 9x16 12x4 4x12"
LARGE: Final = "20x20 24x24 24x16 16x24 24x6 6x24 24x4 4x24"
"""Sizes in units, width and height, from 256 to 1536 pixels."""

PIXELS: Final = 2**23
"""How many pixels a shard has."""


@dataclass(frozen=True, slots=True)
class Shard:
    """`latents`: (n, channels, rows, columns), float16, as the autoencoder has them."""

    scenes: list[Scene]
    latents: torch.Tensor


def size(rng: random.Random, small: bool) -> tuple[int, int]:
    """The size of a shard in units: shards have about as many pixels each, so most scenes are small."""
    [sizes] = (SMALL,) if small else rng.choices((SMALL, MEDIUM, LARGE), (6, 3, 1))
    columns, rows = rng.choice(sizes.split()).split("x")
    return int(columns), int(rows)


def made(autoencoder: Any, rng: random.Random, small: bool) -> Shard:
    columns, rows = size(rng, small)
    width, height = columns * UNIT, rows * UNIT
    scenes, latents = [], []
    for _ in range(max(2, PIXELS // (width * height))):
        scenes.append(scene(rng))
        image = as_tensor([draw(scenes[-1], width, height, rng)])
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            latents.append(autoencoder.encode(image).latent_dist.mean.half())
    return Shard(scenes, torch.cat(latents))


def save(shard: Shard, folder: Path) -> None:
    path = folder / f"{os.getpid()}-{time.monotonic_ns()}.shard"
    partial = path.with_suffix(".partial")
    torch.save({"scenes": pickle.dumps(shard.scenes), "latents": shard.latents}, partial)
    partial.rename(path)


def load(path: Path) -> Shard:
    """A shard that this program made: the scenes are a pickle, so load no others."""
    found = torch.load(path, weights_only=True)
    return Shard(pickle.loads(found["scenes"]), found["latents"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--small", action="store_true", help="only scenes of up to 512 x 512 pixels")
    options = parser.parse_args()
    autoencoder = AutoencoderKL(**networks.AUTOENCODER)
    autoencoder.load_state_dict(load_file(TRAINED / "vae.safetensors"))
    folder = options.folder / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    rng, began, images = random.Random(), time.monotonic(), 0
    while time.monotonic() - began < 60 * options.minutes:
        shard = made(autoencoder, rng, options.small)
        save(shard, folder)
        images += len(shard.scenes)
    print(f"{images} scenes in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
