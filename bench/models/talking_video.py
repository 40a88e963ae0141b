"""Measures the cost of a second of talking video: the lower bound in FLOPs, on a GPU, and with talk-tiny on
the CPU.

    python bench/models/talking_video.py floor                   counted on meta tensors: no memory, no GPU
    python bench/models/talking_video.py gpu [--size 480p] [--profile exact]  random, true sizes, bfloat16
    python bench/models/talking_video.py tiny [--seconds 4]      talk-tiny on one CPU thread
    … [--json bench/results/talking-video.json]                  adds its figures to this file

`floor` is the time in which a GPU that only multiplies, at 790 TFLOP/s (bfloat16, dense: what an H100
sustains), would make a second of video. Only the network is counted; each chunk of 81 frames gives 72 new
ones. The figures of the study by which the model was chosen are printed, too.

`gpu` times steps of the real loop with guidance, and the autoencoder, as they are served; without `--profile`
as diffusers has them, with it with what a profile changes of the network. A profile with a step cache needs
`--steps 40`, since the mean counts. Random weights cost the same as trained ones.
`share` is the floor divided by the measured time, of the network alone. The memory that the computation takes
is printed with the plan of `memory` for it. `on_a_gpu.py` runs this on a machine without a package registry.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from talking_video_tiny import show_tiny, tiny
from timing import synchronize, timed

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import machine

from stoker.models.speed_ups import profiles
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.talking_video.pipeline import run_once
from stoker.models.talking_video.sampling.chunks import FPS, ChunkShape, latents_of
from stoker.models.talking_video.sampling.schedule import Guidance, forwards, levels
from stoker.models.talking_video.sampling.settings import SETTINGS

PEAK = 790e12
SIZES = {"480p": (640, 640), "720p": (960, 960)}
SHAPE = ChunkShape()
SAMPLERS = {
    "exact": (SETTINGS["published"].steps, SETTINGS["published"].guidance),
    "fast": (SETTINGS["distilled"].steps, SETTINGS["distilled"].guidance),
    "fastest": (4, Guidance(1.0, 1.0)),
}
"""Steps and guidance. `fastest`, a network distilled to four steps of one forward, is no pipeline of ours."""

STUDY = {
    "480p": {"exact": 99.9, "fast": 13.3, "fastest": 3.3},
    "720p": {"exact": 362.0, "fast": 48.0, "fastest": 12.1},
}
"""Seconds per second of video."""

TEXT_TOKENS, IMAGE_TOKENS, AUDIO_WIDTH = 512, 257, 768


# The floor


def floor() -> dict[str, Any]:
    return {size: floor_of(size) for size in SIZES}


def floor_of(size: str) -> dict[str, Any]:
    """The FLOPs of one forward with one speaker, and the time for a second of video."""
    import torch

    with torch.device("meta"), torch.inference_mode():
        network = true_network()
        total, parts = counted(lambda: network(*inputs_of(network, size, "meta", torch.float32)))
        windows = torch.empty(1, SHAPE.frames, 5, 12, AUDIO_WIDTH)
        projector, _ = counted(lambda: network.audio_proj(windows))
    return {
        "tokens": tokens_of(size),
        "forward_tflop": round(total / 1e12, 1),
        "parts": {name: round(flops / total, 4) for name, flops in parts.items()},
        "projector_tflop": round(projector / 1e12, 3),
        "seconds_per_second": {name: round(floor_seconds(total, name), 2) for name in SAMPLERS},
        "study": STUDY[size],
    }


def true_network() -> Any:
    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel

    return TalkingTransformer3DModel()


def tokens_of(size: str) -> int:
    height, width = SIZES[size]
    return latents_of(SHAPE.frames) * (height // 16) * (width // 16)


def inputs_of(network: Any, size: str, device: str, dtype: Any) -> tuple[Any, ...]:
    """Latents, time, text, image, audio."""
    import torch

    height, width = SIZES[size]
    frames = latents_of(SHAPE.frames)
    config = network.config

    def random(*shape: int) -> Any:
        return torch.randn(shape, device=device, dtype=dtype)

    return (
        random(1, config.in_channels, frames, height // 8, width // 8),
        torch.full((1,), 500.0, device=device),
        random(1, TEXT_TOKENS, config.text_dim),
        random(1, IMAGE_TOKENS, config.image_dim),
        random(1, frames, config.audio_tokens, config.audio_dim),
    )


def counted(work: Callable[[], object]) -> tuple[int, dict[str, int]]:
    """The FLOPs of a forward, and those of the parts of its blocks."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    parts: dict[str, int] = defaultdict(int)
    for module, operations in counter.get_flop_counts().items():
        names = module.split(".")
        if len(names) == 4 and names[1] == "blocks":
            for operation, flops in operations.items():
                attends = names[3] == "attn1" and "addmm" not in str(operation)
                parts["attn1, all with all" if attends else names[3]] += flops
    return counter.get_total_flops(), dict(parts)


def floor_seconds(forward: float, sampler: str) -> float:
    """The lower bound of GPU seconds for a second of video."""
    steps, guidance = SAMPLERS[sampler]
    return forward * steps * len(forwards(guidance)) / PEAK / (SHAPE.step / FPS)


def show_floor(found: dict[str, Any]) -> None:
    for size, row in found.items():
        height, width = SIZES[size]
        parts = ", ".join(f"{name} {share:.1%}" for name, share in row["parts"].items())
        print(f"{size} ({height} x {width}, {row['tokens']} tokens): {row['forward_tflop']} TFLOP a forward")
        print(f"  of which {parts}")
        for name, (steps, guidance) in SAMPLERS.items():
            ours, theirs = row["seconds_per_second"][name], row["study"][name]
            runs = f"{steps} x {len(forwards(guidance))}"
            print(f"  {name:8}{runs:>7}: {ours:8.2f} s/s   study {theirs:6.1f}   {ours / theirs - 1:+.1%}")


# On a GPU


def gpu(size: str, steps: int, profile: str | None) -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"there is no NVIDIA GPU that torch {torch.__version__} can use; `floor` needs none")
    flops = floor_of(size)["forward_tflop"] * 1e12
    network = random_network(true_network, "cuda", torch.bfloat16)
    about: dict[str, Any] = {"size": size, "profile": profile or "plain diffusers"}
    if profile is not None:
        about["speed_ups"], about["warm_up_s"] = sped_up(network, size, profile)
    coding_s, coding = with_memory(lambda: autoencoder_seconds(size))
    samplers, sampling = with_memory(lambda: samplers_of(network, size, steps, flops, sum(coding_s.values())))
    memory = {"coding": coding, "sampling": sampling, "planned": planned_gib(size)}
    return about | {"autoencoder_s": coding_s, "samplers": samplers, "work_gib": memory}


def samplers_of(network: Any, size: str, steps: int, flops: float, coding_s: float) -> dict[str, Any]:
    rows = {}
    for name in SAMPLERS:
        rows[name] = sampler_row(name, step_seconds(network, size, name, steps), flops, coding_s)
        print(f"  {name}: {json.dumps(rows[name])}", flush=True)
    return rows


def with_memory(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `work`, and the most GiB that it allocated."""
    import torch

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    return result, round((torch.cuda.max_memory_allocated() - before) / 2**30, 1)


def planned_gib(size: str) -> dict[str, float]:
    """The plan for the largest shape of the size, a little larger than the one that is timed. The measured
    memory for coding includes the autoencoder's weights, half a GiB."""
    from stoker.models.talking_video.memory import GIB, Network, work_of

    work = work_of(Network(5120, 13824, 96), size, SHAPE.frames)
    return {"coding": round(work.coding / GIB, 1), "sampling": round(work.sampling / GIB, 1)}


def sampler_row(name: str, step: float, flops: float, coding_s: float) -> dict[str, float]:
    """Seconds for a forward, and for a second of video by the network alone and with the autoencoder."""
    count, guidance = SAMPLERS[name]
    network = step * count / (SHAPE.step / FPS)
    return {
        "forward_s": round(step / len(forwards(guidance)), 4),
        "network_s_per_s": round(network, 2),
        "all_s_per_s": round(network + coding_s / (SHAPE.step / FPS), 2),
        "share": round(floor_seconds(flops, name) / network, 3),
    }


def random_network(make: Callable[[], Any], device: str, dtype: Any) -> Any:
    """Creates the network on the device itself, so that 38 GB need not pass through the host."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            network = make().eval()
    finally:
        torch.set_default_dtype(usual)
    for name, parameter in network.named_parameters():
        if any(part in name.split(".") for part in network._keep_in_fp32_modules):
            parameter.data = parameter.data.float()
    return network


def sped_up(network: Any, size: str, profile: str) -> tuple[dict[str, str], float]:
    """Applies the speed-ups of a profile that are the network's; how, and the seconds that it took."""
    height, width = SIZES[size]
    settings = SETTINGS["published"]
    example = functools.partial(run_once, network, settings, width, height)
    loaded = Loaded(network, None, "cuda", steps=settings.steps, examples={size: example})
    names = [name for name in profiles.names(profile) if name not in ("planned-placement", "prompt-cache")]
    applied: dict[str, str] = {}
    seconds = timed(lambda: applied.update(profiles.apply(names, loaded).done))
    return applied, round(seconds, 1)


def step_seconds(network: Any, size: str, sampler: str, steps: int) -> float:
    """The seconds of one step of the real loop; the first, which compiles, is not counted."""
    import torch

    from stoker.models.talking_video.sampling.sampling import Conditions, denoised

    device, dtype = str(network.device), network.dtype
    latents, _, text, image, audio = inputs_of(network, size, device, dtype)
    channels = network.config.out_channels
    noise, still = latents[:, :channels].float(), latents[:, channels:]
    conditions = Conditions(text, torch.zeros_like(text), image, still, audio, torch.zeros_like(audio))
    known = noise[:, :, : latents_of(SHAPE.motion)].clone()
    times = []

    def on_step(done: int) -> bool:
        synchronize()
        times.append(time.perf_counter())
        return True

    guidance = SAMPLERS[sampler][1]
    with torch.inference_mode():
        denoised(network, conditions, noise, known, levels(steps + 1, 7.0), guidance, on_step)
    return statistics.mean(later - now for now, later in pairwise(times))


def autoencoder_seconds(size: str, device: str = "cuda") -> dict[str, float]:
    """The seconds to decode the frames of a chunk, and to encode its motion frames."""
    import torch
    from diffusers import AutoencoderKLWan

    from stoker.models.talking_video.network.frames_from_latents import decoded, encoded

    vae = AutoencoderKLWan().to(device).eval()
    height, width = SIZES[size]
    latents = torch.randn(
        1, vae.config.z_dim, latents_of(SHAPE.frames), height // 8, width // 8, device=device
    )
    motion = torch.rand(1, 3, SHAPE.motion, height, width, device=device) * 2 - 1
    with torch.inference_mode():
        works = {"decode": lambda: list(decoded(vae, latents)), "encode": lambda: encoded(vae, motion)}
        return {name: round(min(timed(work) for _ in range(2)), 3) for name, work in works.items()}


def gpu_facts() -> dict[str, Any]:
    import torch

    facts = {"torch": torch.__version__}
    return facts | {"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else facts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["floor", "gpu", "tiny"])
    parser.add_argument("--size", choices=list(SIZES), default="480p", help="of `gpu`")
    parser.add_argument("--steps", type=int, default=2, help="of `gpu`: how many steps are timed")
    parser.add_argument("--profile", help="of `gpu`: as in STOKER_PROFILE")
    parser.add_argument("--seconds", type=float, default=4.0, help="of `tiny`")
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    options = parser.parse_args()
    about = machine("../models", "models/talking_video.py", "models/talking_video_tiny.py") | gpu_facts()
    key = options.what
    if options.what == "floor":
        show_floor(found := floor())
    elif options.what == "tiny":
        show_tiny(found := tiny(options.seconds))
    else:
        key = f"gpu {options.size}" + (f" {options.profile}" if options.profile else "")
        print(json.dumps(found := gpu(options.size, options.steps, options.profile)))
    print(f"  {json.dumps(about)}")
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(kept | {key: found | {"machine": about}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
