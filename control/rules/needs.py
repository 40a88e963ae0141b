"""A worker's needs of the node and the devices that the worker is placed on. Pure data;
`control.rules.placement` decides.

An empty field requires nothing. Versions read "12.8"; bytes and counts are whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Needs(Struct, frozen=True):
    """A worker's needs. `compute` is "GPU", "CPU", or "": a GPU where there is one, and a CPU otherwise.
    `gpu_types` are GPUs' names, the best first. `share` is the part of one GPU's memory that the worker
    declares to take; others may be placed beside it in what is left. `gpu_memory_bytes`: the least on each
    GPU. `vcpus` and `memory_bytes` are of the host; work on GPUs is not refused for want of them.
    `labels` and `data_centers` are compared with what the node's agent was started with."""

    compute: str = ""
    gpu_types: tuple[str, ...] = ()
    gpu_count: int = 1
    gpu_memory_bytes: int | None = None
    share: float = 1.0
    min_cuda: str = ""
    cuda_versions: tuple[str, ...] = ()
    data_centers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    vcpus: int | None = None
    memory_bytes: int | None = None
