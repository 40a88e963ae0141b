"""Trains the autoencoder of `flux-mini` on crops of scenes.

    python -m stoker.models.text_to_image.training.autoencoder FOLDER --minutes 30 [--finish]

The loss is the mean difference of colours and of their gradients, which keeps edges sharp, and a little of
the Kullback-Leibler divergence, which keeps the latents near a normal distribution.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.training.drawing import draw
from stoker.models.text_to_image.training.scenes import scene
from stoker.models.text_to_image.training.stretch import Optimizers, Stretch

SIDES = (256, 256, 256, 384, 512, 512, 768, 1024)
KL = 2e-4


def scenes(number: int, rng: random.Random) -> list[NDArray[np.uint8]]:
    """Scenes of several sizes."""
    return [draw(scene(rng), rng.choice(SIDES), rng.choice(SIDES), rng) for _ in range(number)]


def crop(image: NDArray[np.uint8], side: int, rng: random.Random) -> NDArray[np.uint8]:
    """A square of the image; of three at random, mostly the one that shows more."""
    found = []
    for _ in range(3):
        y, x = rng.randint(0, image.shape[0] - side), rng.randint(0, image.shape[1] - side)
        found.append(image[y : y + side, x : x + side])
    return max(found, key=lambda part: float(part[::8, ::8].std())) if rng.random() < 0.8 else found[0]


def as_tensor(images: list[NDArray[np.uint8]]) -> torch.Tensor:
    """(n, 3, height, width) from -1 to 1."""
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--scenes", type=int, default=1500)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = options.folder / "autoencoder.pt"
    rng = random.Random(checkpoint.stat().st_mtime if checkpoint.exists() else 0)
    torch.manual_seed(rng.randrange(2**31))
    pool = scenes(options.scenes, rng)
    model = AutoencoderKL(**networks.AUTOENCODER)
    begin(model)
    optimizers = Optimizers(model, 2e-3, edges=("conv_in.", "conv_out."))

    def batch() -> torch.Tensor:
        side = rng.choice((128, 192, 192, 256))
        number = max(2, round(options.batch * (128 / side) ** 2))
        return as_tensor([crop(rng.choice(pool), side, rng) for _ in range(number)])

    def loss_of(step: int) -> torch.Tensor:
        if step % 4 == 0:
            pool[step // 4 % len(pool)] = draw(scene(rng), rng.choice(SIDES), rng.choice(SIDES), rng)
        images = batch()
        with torch.autocast("cpu", torch.bfloat16):
            latents = model.encode(images).latent_dist
            made = model.decode(latents.sample()).sample
        found: torch.Tensor = (
            difference(made.float(), images) + KL * latents.kl().mean() / latents.mean[0].numel()
        )
        return found

    held_out = as_tensor([draw(scene(random.Random(n)), 256, 256, random.Random(n)) for n in range(8)])

    def report(step: int, average: AutoencoderKL) -> str:
        if step % 200:
            return ""
        with torch.inference_mode():
            latents = average.encode(held_out).latent_dist
            made = average.decode(latents.mean).sample.clamp(-1, 1)
        error = (made - held_out).square().mean() / 4
        return (
            f"PSNR {-10 * error.log10():.2f} dB, latents {latents.mean.std():.2f} ± {latents.std.mean():.2f}"
        )

    Stretch(model, optimizers, checkpoint, options.minutes, options.finish).run(loss_of, report)


if __name__ == "__main__":
    main()
