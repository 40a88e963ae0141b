"""Trains `flux-mini` from nothing, by the recipe.

    pip install --no-deps qtawesome==1.4.2                        # the icons
    python -m training.flux_mini FOLDER

Interrupted, the same command goes on. The folder has the checkpoints, the scenes, and in the end in `trained`
the files of `mini/trained`. An autoencoder that is in `trained` beforehand is kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from diffusers import AutoencoderKL
from safetensors.torch import load_file

from stoker.models.text_to_image.mini import networks
from training.flux_mini import autoencoder, export, scene_files, transformer
from training.flux_mini.recipe import RECIPE, Recipe


def train(folder: Path, recipe: Recipe) -> None:
    """Makes in the folder whatever is missing of a trained `flux-mini`."""
    trained, scenes = folder / "trained", folder / "scenes"
    folder.mkdir(parents=True, exist_ok=True)
    file = trained / "vae.safetensors"
    if not file.exists():
        found = autoencoder.train(recipe, folder / "autoencoder.pt")
        export.write(file, found.state_dict())
    model = AutoencoderKL(**networks.AUTOENCODER)
    model.load_state_dict(load_file(file))
    scene_files.make(model, recipe, scenes)
    networks_ = transformer.train(recipe, scenes, model, folder / "transformer.pt")
    export.write_all(trained, networks_.state_dict())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    train(parser.parse_args().folder, RECIPE)


if __name__ == "__main__":
    main()
