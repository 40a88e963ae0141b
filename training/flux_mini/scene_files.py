"""Scenes with their latents, for the transformer to train on, stored in parts.

A part's scenes depend on the seed and on its number only, so an interrupted making goes on with what is
missing.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tqdm import tqdm

from training.flux_mini.autoencoder import as_tensor
from training.flux_mini.drawing import draw
from training.flux_mini.optimizers import quicker
from training.flux_mini.recipe import Phase, Recipe, Size
from training.flux_mini.scenes import Scene, scene

AT_ONCE: Final = 8 * 256 * 256
"""How many pixels the autoencoder gets at once."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the scenes. `latents`: (n, channels, rows, columns), float16, as the autoencoder has them."""

    scenes: list[Scene]
    latents: torch.Tensor


def make(autoencoder: Any, recipe: Recipe, phase: Phase, folder: Path) -> None:
    """Makes the parts that are missing of a phase, in a folder for each size."""
    autoencoder.to(memory_format=torch.channels_last)
    missing = [
        (size, path)
        for size, number in phase.scenes.items()
        for path in map(of_size(folder, size).joinpath, _names(-(-number // recipe.part)))
        if not path.exists()
    ]
    for size, path in tqdm(missing, desc="scenes", unit="part"):
        rng = random.Random(f"{recipe.seed} {path.parent.name} {path.stem}")
        path.parent.mkdir(parents=True, exist_ok=True)
        save(_made(autoencoder, phase.kinds, recipe.part, size, rng), path)


def of_size(folder: Path, size: Size) -> Path:
    """Returns the folder of the scenes with this size."""
    width, height = size
    return folder / f"{width}x{height}"


def _names(number: int) -> list[str]:
    return [f"{part:05}.part" for part in range(number)]


def _made(autoencoder: Any, kinds: Mapping[str, float], number: int, size: Size, rng: random.Random) -> Part:
    wanted = rng.choices(list(kinds), list(kinds.values()), k=number)
    scenes, latents = [of_kind(kind, rng) for kind in wanted], []
    at_once = max(1, AT_ONCE // (size[0] * size[1]))
    for first in range(0, len(scenes), at_once):
        drawn = [draw(one, *size, rng) for one in scenes[first : first + at_once]]
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
