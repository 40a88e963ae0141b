"""Writes what was trained so far into `mini/trained`, as bfloat16.

    python -m stoker.models.text_to_image.training.export FOLDER

The averaged weights are taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from stoker.models.text_to_image.mini.weights import TRAINED

TIED = "encoder.embed_tokens.weight"
"""The same as T5's `shared.weight`."""

PARTS = {"transformer.": "transformer", "clip.": "clip", "t5.": "t5"}


def averaged(checkpoint: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(checkpoint, weights_only=True)["average"]
    return found


def write(name: str, weights: dict[str, torch.Tensor]) -> None:
    path = TRAINED / f"{name}.safetensors"
    half = {key: value.bfloat16().contiguous() for key, value in weights.items() if key != TIED}
    save_file(half, path, metadata={"format": "pt"})
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if (checkpoint := folder / "autoencoder.pt").exists():
        write("vae", averaged(checkpoint))
    if (checkpoint := folder / "transformer.pt").exists():
        weights = averaged(checkpoint)
        for prefix, name in PARTS.items():
            write(name, {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})


if __name__ == "__main__":
    main()
