"""Pools of GPU types, by which endpoints ask for GPUs here. Pure.

The published pools are fixed. A type in none of them, such as one that only a node of this cluster has, is a
pool of itself. Every type is in one pool, so a list of types and pools without excluded types say the same;
all pools together are any GPU, which is an empty list of types.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stoker.control.errors import BadRequest
from stoker.control.rules.submissions import abbreviated

POOLS: dict[str, tuple[str, ...]] = {
    "AMPERE_16": (
        "NVIDIA RTX A4000",
        "NVIDIA RTX A4500",
        "NVIDIA RTX 4000 Ada Generation",
        "NVIDIA RTX 2000 Ada Generation",
    ),
    "AMPERE_24": ("NVIDIA RTX A5000", "NVIDIA L4", "NVIDIA GeForce RTX 3090"),
    "AMPERE_48": ("NVIDIA A40", "NVIDIA RTX A6000"),
    "AMPERE_80": ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"),
    "ADA_24": ("NVIDIA GeForce RTX 4090",),
    "ADA_32_PRO": ("NVIDIA GeForce RTX 5090",),
    "ADA_48_PRO": ("NVIDIA RTX 6000 Ada Generation", "NVIDIA L40", "NVIDIA L40S"),
    "ADA_80_PRO": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"),
    "HOPPER_141": ("NVIDIA H200",),
    "BLACKWELL_96": (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    ),
    "BLACKWELL_180": ("NVIDIA B200",),
}

MEMORY_GB = {
    "AMD Instinct MI300X OAM": 192,
    "NVIDIA  A30": 24,
    "NVIDIA  RTX A4500": 20,
    "NVIDIA A100 80GB PCIe": 80,
    "NVIDIA A100-SXM4-80GB": 80,
    "NVIDIA A30": 24,
    "NVIDIA A40": 48,
    "NVIDIA A5000 Ada": 32,
    "NVIDIA B200": 180,
    "NVIDIA GeForce RTX 3070": 8,
    "NVIDIA GeForce RTX 3080": 10,
    "NVIDIA GeForce RTX 3080 Ti": 12,
    "NVIDIA GeForce RTX 3080TI": 12,
    "NVIDIA GeForce RTX 3090": 24,
    "NVIDIA GeForce RTX 3090 Ti": 24,
    "NVIDIA GeForce RTX 4070 Ti": 12,
    "NVIDIA GeForce RTX 4080": 16,
    "NVIDIA GeForce RTX 4080 SUPER": 16,
    "NVIDIA GeForce RTX 4090": 24,
    "NVIDIA GeForce RTX 5080": 16,
    "NVIDIA GeForce RTX 5090": 32,
    "NVIDIA H100 80GB HBM3": 80,
    "NVIDIA H100 NVL": 94,
    "NVIDIA H100 PCIe": 80,
    "NVIDIA H200": 141,
    "NVIDIA H200 NVL": 141,
    "NVIDIA L4": 24,
    "NVIDIA L40": 48,
    "NVIDIA L40S": 48,
    "NVIDIA RTX 2000 Ada Generation": 16,
    "NVIDIA RTX 4000 Ada Generation": 20,
    "NVIDIA RTX 4000 SFF Ada Generation": 20,
    "NVIDIA RTX 5000 Ada Generation": 32,
    "NVIDIA RTX 6000 Ada Generation": 48,
    "NVIDIA RTX A2000": 6,
    "NVIDIA RTX A30": 24,
    "NVIDIA RTX A4000": 16,
    "NVIDIA RTX A4500": 20,
    "NVIDIA RTX A5000": 24,
    "NVIDIA RTX A6000": 48,
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": 96,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 96,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": 96,
    "Tesla T4": 16,
    "Tesla V100-FHHL-16GB": 16,
    "Tesla V100-PCIE-16GB": 16,
    "Tesla V100-PCIE-32GB": 32,
    "Tesla V100-SXM2-16GB": 16,
    "Tesla V100-SXM2-32GB": 32,
}
"""The memory of the published types, by their makers' data sheets. Of another type its nodes say it."""

_POOL_OF = {one: pool for pool, types in POOLS.items() for one in types}


def pool_of(gpu_type: str) -> str | None:
    """Returns the published pool of a type, or None."""
    return _POOL_OF.get(gpu_type)


def types_of(pools: Sequence[str], excluded: Sequence[str], known: Collection[str]) -> list[str]:
    """Returns the types in these pools, in their order, without the excluded ones; none for any GPU. `known`
    are all types there are. Raises BadRequest."""
    for pool in pools:
        if pool not in POOLS and (pool not in known or pool in _POOL_OF):
            own = sorted(one for one in known if one not in _POOL_OF)
            raise BadRequest(
                f"gpu.pools must hold names out of: {', '.join([*POOLS, *own])}; got {abbreviated(pool)}"
            )
    if not excluded and POOLS.keys() <= set(pools):
        return []
    found = dict.fromkeys(one for pool in pools for one in POOLS.get(pool, (pool,)))
    for one in excluded:
        if one not in found:
            raise BadRequest(
                f"gpu.excludedTypes must hold types of gpu.pools, which are {', '.join(found)}; got"
                f" {abbreviated(one)}"
            )
    left = [one for one in found if one not in excluded]
    if not left:
        raise BadRequest("gpu.excludedTypes leaves no type of gpu.pools")
    return left


def pools_of(types: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the pools and the excluded types that say the same as a list of types."""
    if not types:
        return list(POOLS), []
    pools = list(dict.fromkeys(_POOL_OF.get(one, one) for one in types))
    return pools, [one for pool in pools for one in POOLS.get(pool, ()) if one not in types]
