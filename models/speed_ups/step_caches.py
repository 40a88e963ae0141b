"""Steps that reuse what a step before computed, where little changes between the two. Lossy.

    first block   runs the first block; if its output changed little since the last whole step, the change
                  that the other blocks made then is used again
    mag cache     skips whole steps by a curve of how much they change, which was measured for FLUX.1
    taylor seer   extrapolates the output of the attentions for some steps after each whole one

The caches are diffusers'. Their state belongs to one job, or one chunk of a video, and is dropped at its end,
however it ended (`forgotten`; diffusers' pipelines do it themselves).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from stoker.models.speed_ups.layers import repeated_blocks
from stoker.models.speed_ups.speed_up import Loaded, NotHere

LEAST_STEPS: Final = 10
"""Below this a step changes too much for another to stand in for it: distilled pipelines take 4 or 8."""

THRESHOLD: Final = 0.08
"""The relative change of the first block's output up to which the others are left out; the authors of the
method give it for FLUX.1."""

KNOWN: Final = (
    "FluxTransformer2DModel",
    "QwenImageTransformer2DModel",
    "SD3Transformer2DModel",
    "TalkingTransformer3DModel",
)
"""The networks for which the caches are tested. diffusers' do not take the blocks of the others."""


def first_block_cache(loaded: Loaded) -> str:
    """Leaves out all blocks but the first in steps in which the first changed little."""
    from diffusers import FirstBlockCacheConfig

    _check(loaded)
    loaded.network.enable_cache(FirstBlockCacheConfig(threshold=THRESHOLD))
    return f"threshold {THRESHOLD}"


def mag_cache(loaded: Loaded) -> str:
    """Leaves out whole steps by the curve that diffusers has for FLUX.1."""
    from diffusers import MagCacheConfig
    from diffusers.hooks.mag_cache import FLUX_MAG_RATIOS

    _check(loaded)
    if type(loaded.network).__name__ != "FluxTransformer2DModel":
        raise NotHere("its curve is known for FLUX.1 only")
    config = MagCacheConfig(mag_ratios=FLUX_MAG_RATIOS, num_inference_steps=loaded.steps)
    loaded.network.enable_cache(config)
    return f"for {loaded.steps} steps"


def taylor_seer(loaded: Loaded) -> str:
    """Computes the attentions' outputs in the first four steps and in each fifth step after them, and
    extrapolates the outputs in the others."""
    import torch
    from diffusers import TaylorSeerCacheConfig

    _check(loaded)
    precision = torch.bfloat16 if loaded.on_gpu else torch.float32
    loaded.network.enable_cache(TaylorSeerCacheConfig(taylor_factors_dtype=precision))
    return "every fifth step whole"


@contextlib.contextmanager
def forgotten(network: Any) -> Iterator[None]:
    """Drops what the network's cache keeps, at the end."""
    try:
        yield
    finally:
        if getattr(network, "is_cache_enabled", False):
            network._reset_stateful_cache()


def kept_for(network: Any, forward: str) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the cache keeps what belongs to this forward: each forward of a step has a
    state of its own."""
    if not getattr(network, "is_cache_enabled", False):
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[None] = network.cache_context(forward)
    return context


def _check(loaded: Loaded) -> None:
    name = type(loaded.network).__name__
    if name not in KNOWN:
        raise NotHere(f"diffusers has no cache for the blocks of {name}")
    kinds = repeated_blocks(loaded.network)
    if sum(type(module).__name__ in kinds for module in loaded.network.modules()) < 2:
        raise NotHere("the network has one block, and none after the first to leave out")
    if loaded.steps < LEAST_STEPS:
        raise NotHere(f"a job has {loaded.steps} steps, which are too few to leave one out")
    _take_caches(loaded.network)
    if loaded.network.is_cache_enabled:
        raise NotHere("another cache is in use")


def _take_caches(network: Any) -> None:
    """Gives a network of diffusers that takes no caches, as that of Stable Diffusion 3, what the others have.
    Its pipeline makes one forward a step, with one state."""
    from diffusers.models.cache_utils import CacheMixin

    kind = type(network)
    if issubclass(kind, CacheMixin):
        return

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        with kept_for(self, "all"):
            return kind.forward(self, *arguments, **named)

    functools.update_wrapper(forward, kind.forward)
    network.__class__ = type(kind.__name__, (CacheMixin, kind), {"forward": forward})
    for module in network.modules():
        if getattr(module, "context_pre_only", False) and hasattr(module, "norm1_context"):
            module.forward = _with_text(module.forward)


def _with_text(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a last block return the text's tokens as they came, in place of None: nothing reads them, but the
    first block cache subtracts them."""

    @functools.wraps(forward)
    def returns(hidden_states: Any, encoder_hidden_states: Any, *rest: Any, **named: Any) -> Any:
        text, hidden = forward(hidden_states, encoder_hidden_states, *rest, **named)
        return encoder_hidden_states if text is None else text, hidden

    return returns
