"""The export of trained networks as the files of `mini/trained`, as bfloat16, and how they are read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file
from torch import nn

TIED: Final = "encoder.embed_tokens.weight"
"""The same as T5's `shared.weight`."""

PARTS: Final = ("transformer", "clip", "t5")
"""The networks that are trained together."""


def write(path: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Writes one network's file, and its folder if that is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = {key: value.bfloat16().contiguous() for key, value in weights.items() if key != TIED}
    save_file(half, path, metadata={"format": "pt"})


def write_all(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Writes a file for each of the networks that are trained together."""
    for part in PARTS:
        own = {key.removeprefix(f"{part}."): value for key, value in weights.items() if key.startswith(part)}
        write(folder / f"{part}.safetensors", own)


def has_all(folder: Path) -> bool:
    """Returns whether the folder has the files of all networks that are trained together."""
    return all((folder / f"{part}.safetensors").exists() for part in PARTS)


def read_all(folder: Path, networks: nn.Module) -> None:
    """Reads the weights of the networks that are trained together."""
    for part in PARTS:
        networks.get_submodule(part).load_state_dict(load_file(folder / f"{part}.safetensors"), strict=False)
