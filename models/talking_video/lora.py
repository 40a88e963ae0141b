"""Adds a LoRA to the network's weights, once, as it is loaded: nothing is computed beside them afterwards,
and nothing is compiled again when the strength changes.

    weight += scale * alpha / rank * up @ down        lora_down, lora_up (or lora_A, lora_B), alpha
    weight += scale * diff      bias += scale * diff_b

Names are Wan's own or diffusers', as in the weights (see `wan_weights`). Every key is either used or told by
name: a LoRA of which half is dropped makes a video of sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch

from stoker.models.talking_video.wan_weights import WrongWeights, our_names

__all__ = ["fuse", "fuse_file"]

Changes: TypeAlias = dict[str, dict[str, torch.Tensor]]
"""What changes each module, by the names of KINDS."""

KINDS: Final[Mapping[str, str]] = {
    ".lora_down.weight": "down",
    ".lora_A.weight": "down",
    ".lora_up.weight": "up",
    ".lora_B.weight": "up",
    ".lora_B.bias": "bias",
    ".alpha": "alpha",
    ".diff": "weight",
    ".diff_b": "bias",
}


def fuse_file(network: Any, file: Path, scale: float) -> None:
    """Raises WrongWeights for a file that is not one of this network's; nothing is changed then."""
    from safetensors.torch import load_file

    fuse(network, load_file(file), scale, file.name)


def fuse(network: Any, state: Mapping[str, torch.Tensor], scale: float, name: str) -> None:
    weights: dict[str, torch.Tensor] = network.state_dict()
    changes, unknown = _by_module(state, weights)
    if unknown or not changes:
        some = ", ".join(sorted(unknown)[:5]) or "none at all"
        raise WrongWeights(f"{name}: {len(unknown)} keys are of no LoRA of this network: {some}")
    deltas = [delta for module, change in changes.items() for delta in _deltas(module, change, name)]
    for key, delta in deltas:
        if weights[key].shape != delta.shape:
            raise WrongWeights(
                f"{name}: {key} is changed by {tuple(delta.shape)}; it is {tuple(weights[key].shape)}"
            )
    with torch.no_grad():
        for key, delta in deltas:
            weights[key].copy_(weights[key].float() + scale * delta.to(weights[key].device))


def _by_module(
    state: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> tuple[Changes, list[str]]:
    """By our names of the modules, and the keys that nobody knows."""
    suffixes = {key: next((suffix for suffix in KINDS if key.endswith(suffix)), "") for key in state}
    theirs = {key: f"{key.removesuffix(suffix)}.weight" for key, suffix in suffixes.items()}
    ours = our_names(theirs.values())
    changes: Changes = {}
    unknown = []
    for key, value in state.items():
        module, kind = ours[theirs[key]].removesuffix(".weight"), KINDS.get(suffixes[key])
        if kind is None or f"{module}.{'bias' if kind == 'bias' else 'weight'}" not in weights:
            unknown.append(key)
        else:
            changes.setdefault(module, {})[kind] = value
    return changes, unknown


def _deltas(module: str, change: Mapping[str, torch.Tensor], name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """What is added to each parameter of a module, in float32."""
    if ("up" in change) != ("down" in change):
        raise WrongWeights(
            f"{name}: {module} has {'up' if 'up' in change else 'down'} without its other half"
        )
    weight = None
    if "up" in change:
        up, down = change["up"].float(), change["down"].float()
        strength = float(change["alpha"]) / len(down) if "alpha" in change else 1.0
        weight = strength * (up.flatten(1) @ down.flatten(1)).reshape(len(up), *down.shape[1:])
    if "weight" in change:
        diff = change["weight"].float()
        weight = diff if weight is None else weight + diff
    if weight is not None:
        yield f"{module}.weight", weight
    if "bias" in change:
        yield f"{module}.bias", change["bias"].float()
