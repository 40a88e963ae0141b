"""Scenes with their latents, for the transformer to train on, stored in parts.

A part's scenes depend on the seed and on its number only, so an interrupted making goes on with what is
missing.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tqdm import tqdm

from training.flux_mini.autoencoder import as_tensor
from training.flux_mini.drawing import draw
from training.flux_mini.optimizers import quicker
from training.flux_mini.recipe import Recipe
from training.flux_mini.scenes import Scene, scene

SIDE: Final = 256
"""The side of a picture in pixels."""
AT_ONCE: Final = 8
"""How many pictures the autoencoder gets at once."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the scenes. `latents`: (n, channels, rows, columns), float16, as the autoencoder has them."""

    scenes: list[Scene]
    latents: torch.Tensor


def make(autoencoder: Any, recipe: Recipe, folder: Path) -> None:
    """Makes the parts that are missing in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    autoencoder.to(memory_format=torch.channels_last)
    number = -(-recipe.scenes // recipe.part)
    missing = [
        path for path in map(folder.joinpath, map("{:05}.part".format, range(number))) if not path.exists()
    ]
    for path in tqdm(missing, desc="scenes", unit="part"):
        rng = random.Random(f"{recipe.seed} {path.stem}")
        save(_made(autoencoder, recipe, rng), path)


def _made(autoencoder: Any, recipe: Recipe, rng: random.Random) -> Part:
    wanted = rng.choices(list(recipe.kinds), list(recipe.kinds.values()), k=recipe.part)
    scenes, latents = [of_kind(kind, rng) for kind in wanted], []
    for first in range(0, len(scenes), AT_ONCE):
        drawn = [draw(one, SIDE, SIDE, rng) for one in scenes[first : first + AT_ONCE]]
        latents.append(encoded(autoencoder, as_tensor(drawn)).half())
    return Part(scenes, torch.cat(latents))


def encoded(autoencoder: Any, images: torch.Tensor) -> torch.Tensor:
    """Returns the means of the latents."""
    images = images.to(memory_format=torch.channels_last)
    with torch.inference_mode(), quicker():
        found: torch.Tensor = autoencoder.encode(images).latent_dist.mean.contiguous()
    return found


def of_kind(kind: str, rng: random.Random) -> Scene:
    while (found := scene(rng)).kind != kind:
        pass
    return found


def save(part: Part, path: Path) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"scenes": pickle.dumps(part.scenes), "latents": part.latents}, partial)
    partial.rename(path)


def load(path: Path) -> Part:
    """Loads a part that this program made: the scenes are a pickle, so load no others."""
    found = torch.load(path, weights_only=True)
    return Part(pickle.loads(found["scenes"]), found["latents"])
