"""Trains `flux-mini` from nothing, by the recipe.

    pip install --no-deps qtawesome==1.4.2                        # the icons
    python -m training.flux_mini FOLDER

Interrupted, the same command goes on. The folder has the checkpoints, the scenes, and in the end in `trained`
the files of `mini/trained`. Weights that are there beforehand are kept: the autoencoder in `trained`, and
those of an earlier phase in the folder with its name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file

from stoker.models.text_to_image.mini import networks
from training.flux_mini import autoencoder, export, scene_files, transformer
from training.flux_mini.recipe import RECIPE, Recipe


def train(folder: Path, recipe: Recipe) -> None:
    """Makes in the folder whatever is missing of a trained `flux-mini`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / recipe.phases[-1].name / "vae.safetensors"
    if not file.exists():
        found = autoencoder.train(recipe, folder / "autoencoder.pt")
        export.write(file, found.state_dict())
    model = AutoencoderKL(**networks.AUTOENCODER)
    model.load_state_dict(load_file(file))
    torch.manual_seed(recipe.seed)
    networks_ = transformer.Networks()
    for phase in recipe.phases:
        weights = folder / phase.name
        if not export.has_all(weights):
            scene_files.make(model, recipe, phase, folder / "scenes")
            made = transformer.train(recipe, phase, networks_, model, folder)
            export.write_all(weights, made.state_dict())
        export.read_all(weights, networks_)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    train(parser.parse_args().folder, RECIPE)


if __name__ == "__main__":
    main()
