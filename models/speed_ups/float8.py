"""Weights and matrix products in 8-bit floating point. They change the picture a little.

float8 products   torchao: both sides of each product of the blocks are rounded to float8, a scale for
                  each row; twice as fast on a GPU that multiplies float8 (compute capability 8.9)
float8 storage    diffusers' layerwise casting: weights are kept in float8 and computed with in their own
                  format; half the memory, no faster, on any device
"""

from __future__ import annotations

from typing import Any, Final

from stoker.models.speed_ups.layers import repeated_blocks, separate_projections
from stoker.models.speed_ups.speed_up import Loaded, NotHere

CAPABILITY: Final = (8, 9)


def float8_products(loaded: Loaded) -> str:
    """Multiplies in float8 in the linear layers of the network's blocks."""
    import torch

    if not loaded.on_gpu or (found := torch.cuda.get_device_capability(loaded.device)) < CAPABILITY:
        have = f"has {found[0]}.{found[1]}" if loaded.on_gpu else "is a CPU"
        raise NotHere(f"it needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]}; this device {have}")
    try:
        from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_
    except ImportError as error:
        raise NotHere(f"torchao cannot be imported: {error}") from error
    if not (names := _products(loaded.network)):
        raise NotHere(f"the repeated blocks of {type(loaded.network).__name__} have no product for it")
    config = Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())
    quantize_(loaded.network, config, filter_fn=lambda module, name: name in names)
    return f"{len(names)} layers"


def _products(network: Any) -> set[str]:
    """Returns the linear layers in the repeated blocks whose sides the GPU's float8 products take, in
    multiples of 16. The first and the last layers of a network change the picture most, and take little time.
    """
    import torch

    kinds = repeated_blocks(network)
    blocks = [name for name, module in network.named_modules() if type(module).__name__ in kinds]
    replaced = {
        id(part)
        for module in network.modules()
        if getattr(module, "fused_projections", False)
        for part in separate_projections(module)
    }
    return {
        f"{block}.{name}"
        for block in blocks
        for name, module in network.get_submodule(block).named_modules()
        if isinstance(module, torch.nn.Linear)
        and module.in_features % 16 == module.out_features % 16 == 0
        and id(module) not in replaced
        and "lora_" not in name
    }


def float8_storage(loaded: Loaded) -> str:
    """Keeps the network's weights in float8, but those of norms and embeddings."""
    import torch

    loaded.network.enable_layerwise_casting(torch.float8_e4m3fn, loaded.network.dtype)
    return "weights in float8"
