"""Addresses of weights in memory: each begins at a boundary of 64 bytes, however it was read.

On some processors a product of a matrix with one row has other last bits when the matrix begins elsewhere
between two boundaries (measured on AMD's Zen 3 and Zen 4). The tensors of a mapped file begin wherever the
length of its header puts them. So without this module, two copies of a pipeline on one host could make
pictures of one seed that differ by 1 of 255.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

BOUNDARY: Final = 64
"""Bytes. torch allocates at these boundaries, too, so that each copy lies at one."""


def align(module: Any) -> None:
    """Copies the weights of a torch module that lie in the CPU's memory, but at no boundary. The others stay
    where they are: mapped weights of one file in several workers share their memory."""
    for weight in (*module.parameters(), *module.buffers()):
        if not is_aligned(weight):
            weight.data = weight.data.clone()


def is_aligned(weight: torch.Tensor) -> bool:
    """Returns whether a tensor begins at a boundary, or lies on another device."""
    return weight.device.type != "cpu" or weight.data_ptr() % BOUNDARY == 0
