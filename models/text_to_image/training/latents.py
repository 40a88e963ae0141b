"""Makes scenes with their latents, for the transformer to train on.

    python -m stoker.models.text_to_image.training.latents FOLDER --scenes 12000 --size 256x256

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
from stoker.models.text_to_image.training.scenes import KINDS, Scene, scene, shares

PIXELS: Final = 2**24
"""How many pixels a shard has."""
AT_ONCE: Final = 2**19
"""How many pixels the autoencoder gets at once."""


@dataclass(frozen=True, slots=True)
class Shard:
    """`latents`: (n, channels, rows, columns), float16, as the autoencoder has them."""

    scenes: list[Scene]
    latents: torch.Tensor


def made(autoencoder: Any, rng: random.Random, width: int, height: int, kinds: dict[str, float]) -> Shard:
    """Scenes of these kinds, in about these shares."""
    number = max(8, PIXELS // (width * height))
    wanted = rng.choices(list(kinds), list(kinds.values()), k=number)
    scenes = [of_kind(kind, rng) for kind in wanted]
    together, latents = max(1, AT_ONCE // (width * height)), []
    for first in range(0, number, together):
        drawn = [draw(one, width, height, rng) for one in scenes[first : first + together]]
        images = as_tensor(drawn).to(memory_format=torch.channels_last)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            latents.append(autoencoder.encode(images).latent_dist.mean.half().contiguous())
    return Shard(scenes, torch.cat(latents))


def of_kind(kind: str, rng: random.Random) -> Scene:
    while (found := scene(rng)).kind != kind:
        pass
    return found


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
    parser.add_argument("--scenes", type=int, default=12000)
    parser.add_argument("--size", default="256x256", help="width and height in pixels, multiples of 64")
    parser.add_argument("--kinds", default=KINDS, help="the share of each kind of scene")
    options = parser.parse_args()
    width, height = (int(side) for side in options.size.split("x"))
    autoencoder = AutoencoderKL(**networks.AUTOENCODER)
    autoencoder.load_state_dict(load_file(TRAINED / "vae.safetensors"))
    autoencoder.to(memory_format=torch.channels_last)
    folder = options.folder / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    rng, began, images = random.Random(), time.monotonic(), 0
    while images < options.scenes:
        shard = made(autoencoder, rng, width, height, shares(options.kinds))
        save(shard, folder)
        images += len(shard.scenes)
    print(f"{images} scenes in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
