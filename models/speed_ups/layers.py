"""The layers of a network: which blocks it repeats, and other layouts of the same weights: fused projections,
and channels last in the autoencoder."""

from __future__ import annotations

from typing import Any

from stoker.models.speed_ups.speed_up import Loaded, NotHere

_FUSED = {
    "to_qkv": ("to_q", "to_k", "to_v"),
    "to_kv": ("to_k", "to_v"),
    "to_added_qkv": ("add_q_proj", "add_k_proj", "add_v_proj"),
    "to_added_kv": ("add_k_proj", "add_v_proj"),
}
"""diffusers' names of fused layers, and of the layers that they replace, in the order of their rows."""


_REPEATED = {"SD3Transformer2DModel": ("JointTransformerBlock",)}
"""The blocks that a network repeats, where diffusers names none."""


def repeated_blocks(network: Any) -> tuple[str, ...]:
    """Returns the classes of the blocks that the network repeats; none where they are not known."""
    named = getattr(network, "_repeated_blocks", None)
    return tuple(named) if named else _REPEATED.get(type(network).__name__, ())


def fused_projections(loaded: Loaded) -> str:
    """Computes query, key and value of an attention by one matrix product instead of three.

    diffusers keeps the separate weights, too; here they become views of the fused ones. So the network needs
    no more memory, and what is added to them, as by a LoRA, is in the product."""
    network = loaded.network
    if not hasattr(network, "fuse_qkv_projections"):
        raise NotHere(f"diffusers cannot fuse the projections of {type(network).__name__}")
    if getattr(network, "peft_config", None):
        raise NotHere("LoRAs are attached to the separate projections")
    try:
        network.fuse_qkv_projections()
    except ValueError as error:
        raise NotHere(str(error)) from error
    fused = sum(_share(module) for module in network.modules() if getattr(module, "fused_projections", False))
    if not fused:
        raise NotHere(f"diffusers fuses none of the projections of {type(network).__name__}")
    return f"{fused} fused"


def separate_projections(attention: Any) -> list[Any]:
    """Returns the layers that a fused attention does not use any more."""
    wholes = [name for name in _FUSED if getattr(attention, name, None) is not None]
    return [getattr(attention, part) for whole in wholes for part in _FUSED[whole]]


def _share(attention: Any) -> int:
    """Makes the separate projections views of the fused; the number of fused layers."""
    found = 0
    for name, parts in _FUSED.items():
        whole = getattr(attention, name, None)
        if whole is None:
            continue
        found, row = found + 1, 0
        for part in (getattr(attention, part) for part in parts):
            rows = part.weight.shape[0]
            part.weight.data = whole.weight.data[row : row + rows]
            if part.bias is not None:
                part.bias.data = whole.bias.data[row : row + rows]
            row += rows
    return found


def channels_last(loaded: Loaded) -> str:
    """Stores the autoencoder's weights so that the channels of a pixel lie side by side, as the GPU's
    convolutions read them."""
    import torch

    if loaded.vae is None or any(weight.ndim > 4 for weight in loaded.vae.parameters()):
        raise NotHere("torch has channels last for images, and this autoencoder has convolutions over frames")
    loaded.vae.to(memory_format=torch.channels_last)
    return "on"
