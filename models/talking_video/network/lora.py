"""A LoRA that is added to the network's weights when it is loaded, so that it costs nothing afterwards and a
change of its strength recompiles nothing.

    weight += scale * alpha / rank * up @ down        lora_down, lora_up (or lora_A, lora_B), alpha
    weight += scale * diff      bias += scale * diff_b      modulation += scale * diff_m

Names are Wan's own or diffusers', as in the weights (see `weights`). Every key is either used or named in an
error: with half of a LoRA missing the network would still make a video, but a bad one. The change of a
parameter is computed when it is added: all changes at once would be as large as the network in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch

from stoker.models.talking_video.network.weights import WrongWeights, our_names

Changes: TypeAlias = dict[str, dict[str, torch.Tensor]]
"""The tensors that change each parameter, by their kinds in SUFFIXES."""

SUFFIXES: Final[Mapping[str, tuple[str, str]]] = {
    ".lora_down.weight": ("down", ".weight"),
    ".lora_A.weight": ("down", ".weight"),
    ".lora_up.weight": ("up", ".weight"),
    ".lora_B.weight": ("up", ".weight"),
    ".alpha": ("alpha", ".weight"),
    ".diff": ("diff", ".weight"),
    ".lora_B.bias": ("diff", ".bias"),
    ".diff_b": ("diff", ".bias"),
    ".diff_m": ("diff", ".modulation"),
}
"""By the suffix of a key: the kind of the tensor, and the parameter of the module that it changes, by Wan's
names."""


def fuse_file(network: Any, file: Path, scale: float) -> None:
    """Raises WrongWeights, and changes nothing, if the file is not for this network."""
    from safetensors.torch import load_file

    fuse(network, load_file(file), scale, file.name)


def fuse(network: Any, state: Mapping[str, torch.Tensor], scale: float, name: str) -> None:
    weights: dict[str, torch.Tensor] = network.state_dict()
    changes, unknown = _by_parameter(state, weights)
    if unknown or not changes:
        some = ", ".join(sorted(unknown)[:5]) or "none at all"
        raise WrongWeights(f"{name}: {len(unknown)} keys are of no LoRA of this network: {some}")
    for key, change in changes.items():
        _check(key, change, weights[key].shape, name)
    with torch.no_grad():
        for key, change in changes.items():
            weights[key].copy_(weights[key].float() + scale * _delta(change, weights[key]))


def _by_parameter(
    state: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> tuple[Changes, list[str]]:
    """Returns the changes by the network's names of the parameters, and the unknown keys."""
    ends = {key: next((suffix for suffix in SUFFIXES if key.endswith(suffix)), None) for key in state}
    theirs = {key: key.removesuffix(end) + SUFFIXES[end][1] for key, end in ends.items() if end}
    ours = our_names(theirs.values())
    changes: Changes = {}
    unknown = []
    for key, value in state.items():
        end = ends[key]
        if end is None or ours[theirs[key]] not in weights:
            unknown.append(key)
        else:
            changes.setdefault(ours[theirs[key]], {})[SUFFIXES[end][0]] = value
    return changes, unknown


def _check(key: str, change: Mapping[str, torch.Tensor], shape: torch.Size, name: str) -> None:
    """Checks that the change has both halves and the parameter's shape."""
    halves = change.keys() & {"up", "down", "alpha"}
    if halves and not {"up", "down"} <= halves:
        raise WrongWeights(
            f"{name}: {key} is changed by {' and '.join(sorted(halves))} without the other half"
        )
    if "up" in change and change["up"].shape[1] != len(change["down"]):
        ranks = f"{change['up'].shape[1]} and {len(change['down'])}"
        raise WrongWeights(f"{name}: the two halves that change {key} have the ranks {ranks}")
    shapes = [change["diff"].shape] if "diff" in change else []
    if "up" in change:
        shapes.append(torch.Size([len(change["up"]), *change["down"].shape[1:]]))
    for found in shapes:
        if found != shape:
            raise WrongWeights(f"{name}: {key} is changed by {tuple(found)}; it is {tuple(shape)}")


def _delta(change: Mapping[str, torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
    """Returns the difference to add to a parameter, in float32, on the parameter's device."""
    moved = {kind: value.to(weight.device, torch.float32) for kind, value in change.items()}
    delta = moved.get("diff", torch.zeros((), device=weight.device))
    if "up" in moved:
        up, down = moved["up"].flatten(1), moved["down"].flatten(1)
        strength = float(change["alpha"]) / len(down) if "alpha" in change else 1.0
        delta = delta + strength * (up @ down).reshape(weight.shape)
    return delta
