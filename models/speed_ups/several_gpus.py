"""Images computed on several GPUs: each has a part of the tokens (diffusers' context parallelism).

The processes, one for each GPU, must be there: started by `torchrun`, or by the handler before it touches
CUDA, with a process group. All of them must run the same jobs in the same order.
"""

from __future__ import annotations

from typing import Any

from stoker.models.speed_ups.speed_up import Loaded, NotHere


def context_parallel(loaded: Loaded) -> str:
    """Divides the tokens of each attention among the processes of the group, by Ulysses: each process has
    all tokens of some heads while it attends, and some tokens of all heads otherwise."""
    import torch.distributed

    ranks = torch.distributed.get_world_size() if _group() else 1
    check(loaded.network, ranks)
    from diffusers import ContextParallelConfig

    loaded.network.enable_parallelism(config=ContextParallelConfig(ulysses_degree=ranks))
    return f"{ranks} GPUs"


def _group() -> bool:
    import torch.distributed

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def check(network: Any, ranks: int) -> None:
    """Raises NotHere unless the network can be divided among this many processes."""
    if ranks < 2:
        raise NotHere("there is one process; several need a process group of torch.distributed")
    if getattr(network, "_cp_plan", None) is None:
        raise NotHere(f"diffusers cannot divide {type(network).__name__}")
    heads = int(network.config.num_attention_heads)
    if heads % ranks:
        raise NotHere(f"{heads} heads of attention cannot be divided among {ranks} GPUs")
