"""Chooses the implementation of attention: torch's own, or that of xformers if STOKER_ATTENTION requests it.

    STOKER_ATTENTION=native       torch's, which is diffusers' default: nothing is changed
    STOKER_ATTENTION=xformers     xformers' memory-efficient attention, or an error if it does not run

Whether xformers runs is found out by one call on the device, with tensors like the network's. Without a GPU
xformers can be imported and reports that it is available, but raises when it is called.
"""

from __future__ import annotations

import os
from typing import Any, Final

ENVIRONMENT: Final = "STOKER_ATTENTION"
NATIVE, XFORMERS = "native", "xformers"

TOKENS: Final = 16


class AttentionUnavailable(RuntimeError):
    """The requested implementation does not run here; the message says why, and what can be used instead."""


def chosen(value: str) -> str:
    """The implementation that a value of STOKER_ATTENTION names; `native` if it is empty. Raises
    ValueError."""
    name = value.strip().lower() or NATIVE
    if name not in (NATIVE, XFORMERS):
        raise ValueError(f"{ENVIRONMENT} is {name!r}; it must be {NATIVE} or {XFORMERS}")
    return name


def choose(network: Any, device: str, *, head_width: int | None = None) -> None:
    """Sets the attention of a diffusers network on this device. `head_width`: the channels of a head, unless
    the network's configuration has them. Raises AttentionUnavailable, and ValueError for an unknown name."""
    backend = chosen(os.environ.get(ENVIRONMENT, ""))
    if backend == NATIVE:
        return
    try:
        _call_once(network, device, head_width or network.config.attention_head_dim)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise AttentionUnavailable(
            f"{ENVIRONMENT} is {backend}, which does not run on {device}: {reason}. `pip install"
            f" 'stoker[gpu]'` installs it for a GPU; {ENVIRONMENT}={NATIVE} needs nothing"
        ) from error
    network.set_attention_backend(backend)


def _call_once(network: Any, device: str, head_width: int) -> None:
    import torch
    import xformers.ops

    ones = torch.ones((1, TOKENS, 1, head_width), dtype=network.dtype, device=device)
    if not torch.isfinite(xformers.ops.memory_efficient_attention(ones, ones, ones)).all():
        raise RuntimeError("its output has values that are not finite")
