"""Placement of a pipeline's parts on the GPU: decided, before anything is moved there, by the sizes of the
parts and the free memory.

    RESIDENT    everything stays on the GPU                                   (the other profiles)
    IN_TURN     each part is there while it runs (accelerate's hooks)         exact
    FLOAT8      the same, with the network's weights in 8 bits                changes the picture a little
    BY_BLOCKS   the blocks of the network come and go, one runs while the     exact, slow
                next is moved (diffusers' group offload)

`decide` is pure: bytes in, a placement out, the first of them that fits. The networks of FLUX.1, of 24 GB, so
run on a GPU of 24 GB in 8 bits, and on one of 12 GB by blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from stoker.models.speed_ups.float8 import float8_storage
from stoker.models.speed_ups.layers import repeated_blocks
from stoker.models.speed_ups.speed_up import Loaded, NotHere

GIB: Final = 2**30
RESERVE: Final = GIB // 2
"""For the device's libraries, and for fragmentation."""
WORK: Final = 2 * GIB
"""An upper estimate of what a step, or decoding in tiles, takes in addition to the weights at 1536 x 1536."""
ENCODING: Final = GIB // 4
"""The same for encoding a prompt."""
BLOCKS_AT_ONCE: Final = 2


class DoesNotFit(MemoryError):
    """The pipeline does not fit on the GPU; the message has the numbers."""


class Placement(IntEnum):
    """The higher, the less memory."""

    RESIDENT = 0
    IN_TURN = 1
    FLOAT8 = 2
    BY_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of weights. `network` and the same with what `float8_storage` leaves of it; its largest block,
    and what is in no block; the autoencoder; the largest of the encoders, and all of them."""

    network: int
    network_float8: int
    block: int
    no_block: int
    vae: int
    encoder: int
    encoders: int


def needs(sizes: Sizes, placement: Placement) -> int:
    """Returns the most bytes that are on the GPU at a time."""
    if placement is Placement.RESIDENT:
        return RESERVE + sizes.network + sizes.vae + sizes.encoders + WORK
    encoding = sizes.encoder + ENCODING
    if placement is Placement.BY_BLOCKS:
        network = sizes.no_block + BLOCKS_AT_ONCE * sizes.block
        return RESERVE + sizes.vae + max(encoding, network + WORK)
    network = sizes.network if placement is Placement.IN_TURN else sizes.network_float8
    return RESERVE + max(encoding, network + WORK, sizes.vae + WORK)


def decide(sizes: Sizes, free_bytes: int) -> Placement:
    """Returns the first placement that fits in so many free bytes. Raises DoesNotFit."""
    for placement in Placement:
        if needs(sizes, placement) <= free_bytes:
            return placement
    least = needs(sizes, Placement.BY_BLOCKS)
    raise DoesNotFit(
        f"the pipeline needs {least / GIB:.1f} GiB even with its network on the GPU block by block; it has"
        f" {free_bytes / GIB:.1f} GiB free"
    )


def planned_placement(loaded: Loaded) -> str:
    """Puts as much on the GPU as fits. On a CPU the network's weights are kept in 8 bits."""
    if not hasattr(loaded.pipe, "components"):
        raise NotHere("the pipeline has a plan of its own")
    if not loaded.on_gpu:
        return float8_storage(loaded)
    import torch

    placement = decide(sizes_of(loaded), torch.cuda.mem_get_info(loaded.device)[0])
    place(loaded, placement)
    return placement.name.lower().replace("_", " ")


def place(loaded: Loaded, placement: Placement) -> None:
    """Moves the parts of diffusers' pipeline, or sets up that they are moved when they run."""
    import torch

    pipe, device = loaded.pipe, torch.device(loaded.device)
    if placement is Placement.FLOAT8:
        float8_storage(loaded)
    if placement is Placement.RESIDENT:
        pipe.to(device)
    elif placement is Placement.BY_BLOCKS:
        streams = device.type == "cuda"
        pipe.enable_group_offload(
            device,
            offload_type="block_level",
            num_blocks_per_group=1,
            use_stream=streams,
            exclude_modules=["vae"],
        )
        pipe.vae.to(device)
    else:
        pipe.enable_model_cpu_offload(device=device)


def sizes_of(loaded: Loaded) -> Sizes:
    """Returns the sizes of a loaded pipeline; its weights may be anywhere, also on torch's meta device."""
    import torch

    network, parts = loaded.network, loaded.pipe.components.values()
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    encoders = [_bytes(part) for part in modules if part is not network and part is not loaded.vae]
    kinds = repeated_blocks(network)
    blocks = [_bytes(module) for module in network.modules() if type(module).__name__ in kinds]
    linear = sum(
        _bytes(module)
        for module in network.modules()
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d | torch.nn.Embedding)
    )
    return Sizes(
        network=_bytes(network),
        network_float8=_bytes(network) - linear + linear // network.dtype.itemsize,
        block=max(blocks, default=0),
        no_block=_bytes(network) - sum(blocks),
        vae=_bytes(loaded.vae),
        encoder=max(encoders, default=0),
        encoders=sum(encoders),
    )


def _bytes(module: Any) -> int:
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def vae_tiling(loaded: Loaded) -> str:
    """Decodes images larger than the autoencoder was trained with in tiles that overlap and are blended."""
    if not hasattr(loaded.vae, "enable_tiling"):
        raise NotHere("nothing is decoded in tiles")
    loaded.vae.enable_tiling()
    return "on"
