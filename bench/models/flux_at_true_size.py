"""FLUX.1's transformer at its true size with random weights: the seconds of an image, beside the floor.

The floor is the time in which a GPU that only multiplies, at 790 TFLOP/s (bfloat16, dense), would make the
steps. Only the network is timed: encoding a prompt and decoding take a fiftieth of it.
"""

from __future__ import annotations

import functools
import gc
import json
import statistics
from typing import Any

import torch
from timing import timed

from stoker.models.speed_ups import block_compile, profiles
from stoker.models.speed_ups.speed_up import Loaded

PEAK = 790e12
TEXT_TOKENS = 512
RUNS = 3


def measured_at_true_size(wanted: list[str], sides: list[int], steps: int) -> dict[str, Any]:
    """For plain diffusers and each profile. Its speed-ups of prompts and of the autoencoder have nothing to
    change here, and the log says so."""
    if not torch.cuda.is_available():
        raise SystemExit(f"there is no NVIDIA GPU that torch {torch.__version__} can use; leave out --gpu")
    rows: dict[str, Any] = {}
    for profile in ["plain diffusers", *wanted]:
        names = () if profile == "plain diffusers" else profiles.names(profile)
        rows[profile] = of_profile(names, sides, steps)
        print(f"  {profile}: {json.dumps(rows[profile])}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    return {"made_up_weights": True, "steps": steps, "profiles": rows}


def of_profile(names: tuple[str, ...], sides: list[int], steps: int) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            network = flux_network().eval()
        finally:
            torch.set_default_dtype(usual)
    examples = {f"{side}x{side}": functools.partial(image, network, side, 1) for side in sides}
    loaded = Loaded(network, None, "cuda", steps=steps, examples=examples)
    applied: dict[str, str] = {}
    warm_s = timed(lambda: applied.update(profiles.apply(names, loaded).done))
    found: dict[str, Any] = {"speed_ups": applied, "warm_up_s": round(warm_s, 1)}
    with block_compile.settled(compiled="block-compile" in applied):
        for side in sides:
            image(network, side, 2)
            seconds = statistics.median(
                timed(lambda side=side: image(network, side, steps)) for _ in range(RUNS)
            )
            floor = floor_seconds(side, steps)
            found[str(side)] = {
                "seconds": round(seconds, 3),
                "floor_s": round(floor, 3),
                "over_floor": round(seconds / floor, 2),
                "share_of_peak": round(floor / seconds, 3),
            }
    found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    return found


def flux_network() -> Any:
    """FLUX.1-dev's: diffusers' defaults, and guidance as an input."""
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(guidance_embeds=True)


def inputs_of(network: Any, side: int, device: str, dtype: Any) -> dict[str, Any]:
    rows = side // 16
    config = network.config
    random = functools.partial(torch.randn, device=device, dtype=dtype)
    positions = torch.zeros(rows * rows, 3, device=device)
    positions[:, 1] = torch.arange(rows, device=device).repeat_interleave(rows)
    positions[:, 2] = torch.arange(rows, device=device).repeat(rows)
    return {
        "hidden_states": random(1, rows * rows, config.in_channels),
        "encoder_hidden_states": random(1, TEXT_TOKENS, config.joint_attention_dim),
        "pooled_projections": random(1, config.pooled_projection_dim),
        "img_ids": positions,
        "txt_ids": torch.zeros(TEXT_TOKENS, 3, device=device),
        "guidance": torch.full((1,), 3.5, device=device),
    }


def image(network: Any, side: int, steps: int) -> None:
    """The steps of one image, each from what the one before left, as the step caches see them."""
    inputs = inputs_of(network, side, "cuda", torch.bfloat16)
    caching = getattr(network, "is_cache_enabled", False)
    with torch.inference_mode():
        for step in range(steps):
            time = torch.full((1,), 1.0 - step / steps, device="cuda", dtype=torch.bfloat16)
            if caching:
                with network.cache_context("cond"):
                    velocity = network(timestep=time, return_dict=False, **inputs)[0]
            else:
                velocity = network(timestep=time, return_dict=False, **inputs)[0]
            inputs["hidden_states"] = inputs["hidden_states"] - velocity / steps
    if caching:
        network._reset_stateful_cache()


@functools.cache
def flop(side: int) -> int:
    """Of one forward, counted on torch's meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network = flux_network()
        inputs = inputs_of(network, side, "meta", torch.float32)
        network(timestep=torch.ones(1), return_dict=False, **inputs)
    return int(counter.get_total_flops())


def floor_seconds(side: int, steps: int) -> float:
    return flop(side) * steps / PEAK
