"""The training of the autoencoder of `flux-mini` on crops of scenes.

The loss is the mean difference of colours and of their gradients, which keeps edges sharp, and a little of
the Kullback-Leibler divergence, which keeps the latents near a normal distribution.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray

from stoker.models.text_to_image.mini import networks
from training.flux_mini.drawing import draw
from training.flux_mini.optimizers import Optimizers, quicker
from training.flux_mini.recipe import Recipe
from training.flux_mini.run import Run
from training.flux_mini.scenes import scene

SIDES = (256, 256, 256, 384, 512, 512, 768, 1024)
KL = 2e-4


def crop(image: NDArray[np.uint8], side: int, rng: random.Random) -> NDArray[np.uint8]:
    """Returns a square of the image; of three at random, mostly the square that shows more."""
    found = []
    for _ in range(3):
        y, x = rng.randint(0, image.shape[0] - side), rng.randint(0, image.shape[1] - side)
        found.append(image[y : y + side, x : x + side])
    return max(found, key=lambda part: float(part[::8, ::8].std())) if rng.random() < 0.8 else found[0]


def as_tensor(images: list[NDArray[np.uint8]]) -> torch.Tensor:
    """Returns the images as (n, 3, height, width) from -1 to 1."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


def difference(made: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    error = made - true
    rows, columns = error.diff(dim=2), error.diff(dim=3)
    return error.abs().mean() + error.square().mean() + rows.abs().mean() + columns.abs().mean()


@torch.no_grad()
def begin(model: AutoencoderKL) -> None:
    """Weights from which it learns several times as fast as from the library's: each level passes on what it
    gets, smaller or larger, and the blocks between add nothing at first."""
    for name, module in model.named_modules():
        if name.endswith(".conv2"):
            module.weight.zero_()
            module.bias.zero_()
        elif name.endswith("upsamplers.0.conv"):
            channels = range(module.weight.shape[0])
            module.weight.mul_(0.3)
            module.weight[channels, channels, 1, 1] += 1
        elif name.endswith("downsamplers.0.conv"):
            channels = range(module.weight.shape[0])
            for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
                module.weight[channels, channels, row, column] += 0.25
    model.encoder.conv_out.bias[networks.CHANNELS :] = -4.0  # the logarithm of a small variance


class Pool:
    """Scenes to crop from. Every fourth step a new scene takes the place of the oldest; which scenes there
    are depends on the seed and the step only. They are drawn when they are needed."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._drawn: dict[int, tuple[int, NDArray[np.uint8]]] = {}

    def any(self, step: int, rng: random.Random) -> NDArray[np.uint8]:
        slot = rng.randrange(self._size)
        number = slot + self._size * ((self._size + step // 4 - 1 - slot) // self._size)
        if self._drawn.get(slot, (-1,))[0] != number:
            own = random.Random(f"{self._seed} scene {number}")
            self._drawn[slot] = number, draw(scene(own), own.choice(SIDES), own.choice(SIDES), own)
        return self._drawn[slot][1]

    def batch(self, step: int, rng: random.Random, crops: int) -> torch.Tensor:
        """Returns as many pixels as so many crops of 128 pixels a side have."""
        side = rng.choice((128, 192, 192, 256))
        number = max(2, round(crops * (128 / side) ** 2))
        return as_tensor([crop(self.any(step, rng), side, rng) for _ in range(number)])


def loss(model: AutoencoderKL, images: torch.Tensor) -> torch.Tensor:
    with quicker():
        latents = model.encode(images).latent_dist
        made = model.decode(latents.sample()).sample
    kl = latents.kl().mean() / latents.mean[0].numel()
    found: torch.Tensor = difference(made.float(), images) + KL * kl
    return found


def score(model: AutoencoderKL, images: torch.Tensor) -> str:
    """Returns how close pictures stay that go through the autoencoder, and how wide its latents are."""
    with torch.inference_mode():
        latents = model.encode(images).latent_dist
        made = model.decode(latents.mean).sample.clamp(-1, 1)
    error = (made - images).square().mean() / 4
    return f"PSNR {-10 * error.log10():.2f} dB, latents {latents.mean.std():.2f} ± {latents.std.mean():.2f}"


def train(recipe: Recipe, checkpoint: Path) -> AutoencoderKL:
    torch.manual_seed(recipe.seed)
    model = AutoencoderKL(**networks.AUTOENCODER)
    begin(model)
    schedule = recipe.autoencoder
    optimizers = Optimizers(model, schedule.rate, edges=("conv_in.", "conv_out."))
    run = Run(model, optimizers, schedule, checkpoint, recipe.seed, recipe.save_every, recipe.score_every)
    pool = Pool(recipe.pool, recipe.seed)
    unseen = as_tensor([draw(scene(rng), 256, 256, rng) for rng in map(random.Random, range(8))])
    return run.train(
        lambda step, rng: loss(model, pool.batch(step, rng, recipe.autoencoder_batch)),
        lambda average: score(average, unseen),
        "autoencoder",
    )
