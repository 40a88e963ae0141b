"""What a second of talking video costs: against the FLOP floor, on a GPU, and with talk-tiny on the CPU.

    python bench/talking_video.py floor                          counted on meta tensors: no memory, no GPU
    python bench/talking_video.py gpu [--size 480p] [--tuned]    random weights at the true sizes, bfloat16
    python bench/talking_video.py tiny [--seconds 4]             talk-tiny, on one thread of the CPU
    … [--json bench/results/talking-video.json]                  adds its figures to this file

The floor is the time in which a GPU that does nothing but multiply, at 790 TFLOP/s (bfloat16, dense: what an
H100 keeps up), would make a second of video. Only the network is counted; each chunk of 81 frames gives 72
new ones. Beside it stand the figures of the study that the model was chosen by.

`gpu` times steps of the real loop, guidance and all, and the autoencoder, on the GPU that is there, as they
are served; `--tuned` compiles the blocks, and takes the attention that wins a race at the true shape. Random
weights cost what trained ones do. `share` is floor over measured, of the network alone; beside what the work
takes of memory stands what `memory` plans for it. `on_a_gpu.py` brings it to a machine without a registry.

`tiny` tells seconds of processor time, which a busy machine changes less than the clock's; the clock's stand
beside the whole and the first piece.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import tempfile
import time
import wave
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from stoker.models.talking_video.chunks import FPS, ChunkShape, latents_of
from stoker.models.talking_video.profiles import PROFILES
from stoker.models.talking_video.schedule import Guidance, forwards, levels

PEAK = 790e12
SIZES = {"480p": (640, 640), "720p": (960, 960)}
SHAPE = ChunkShape()
SAMPLERS = {
    "exact": (PROFILES["exact"].steps, PROFILES["exact"].guidance),
    "fast": (PROFILES["fast"].steps, PROFILES["fast"].guidance),
    "fastest": (4, Guidance(1.0, 1.0)),
}
"""Steps and guidance; `fastest` is a network distilled to four steps of one forward, which has no profile."""

STUDY = {
    "480p": {"exact": 99.9, "fast": 13.3, "fastest": 3.3},
    "720p": {"exact": 362.0, "fast": 48.0, "fastest": 12.1},
}
"""Seconds per second of video."""

TEXT, PICTURE, VOICE = (512, 4096), (257, 1280), (32, 768)


# The floor


def floor() -> dict[str, Any]:
    return {size: floor_of(size) for size in SIZES}


def floor_of(size: str) -> dict[str, Any]:
    """FLOPs of one forward with one speaker, and what they take."""
    import torch

    with torch.device("meta"), torch.inference_mode():
        network = true_network()
        total, parts = counted(lambda: network(*inputs_of(network, size, "meta", torch.float32)))
        windows = torch.empty(1, SHAPE.frames, 5, 12, VOICE[1])
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
    from stoker.models.talking_video.transformer import TalkingTransformer3DModel

    return TalkingTransformer3DModel()


def tokens_of(size: str) -> int:
    height, width = SIZES[size]
    return latents_of(SHAPE.frames) * (height // 16) * (width // 16)


def inputs_of(network: Any, size: str, device: str, dtype: Any) -> tuple[Any, ...]:
    """Latents, time, text, picture, audio."""
    import torch

    height, width = SIZES[size]
    frames = latents_of(SHAPE.frames)
    config = network.config

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, device=device, dtype=dtype)

    return (
        drawn(1, config.in_channels, frames, height // 8, width // 8),
        torch.full((1,), 500.0, device=device),
        drawn(1, TEXT[0], config.text_dim),
        drawn(1, PICTURE[0], config.image_dim),
        drawn(1, frames, config.audio_tokens, config.audio_dim),
    )


def counted(work: Callable[[], object]) -> tuple[int, dict[str, int]]:
    """All FLOPs, and those of the parts of the blocks."""
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
    """Per second of video."""
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


def gpu(size: str, steps: int, tuned: bool) -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"there is no NVIDIA GPU that torch {torch.__version__} can use; `floor` needs none")
    flops = floor_of(size)["forward_tflop"] * 1e12
    network = random_network(true_network, "cuda", torch.bfloat16)
    about: dict[str, Any] = {"size": size, "tuned": tuned}
    if tuned:
        backend, about["race_ms"] = fastest_attention(network, size)
        network.set_attention_backend(backend)
        network.compile_repeated_blocks(fullgraph=True, dynamic=False)
        about["attention"] = backend
    picture, coding = with_memory(lambda: autoencoder_seconds(size))
    samplers, sampling = with_memory(lambda: samplers_of(network, size, steps, flops, sum(picture.values())))
    memory = {"coding": coding, "sampling": sampling, "planned": planned_gib(size)}
    return about | {"autoencoder_s": picture, "samplers": samplers, "work_gib": memory}


def samplers_of(network: Any, size: str, steps: int, flops: float, picture: float) -> dict[str, Any]:
    rows = {}
    for name in SAMPLERS:
        rows[name] = sampler_row(name, step_seconds(network, size, name, steps), flops, picture)
        print(f"  {name}: {json.dumps(rows[name])}", flush=True)
    return rows


def with_memory(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the most GiB that it held beside what was there."""
    import torch

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = work()
    return made, round((torch.cuda.max_memory_allocated() - before) / 2**30, 1)


def planned_gib(size: str) -> dict[str, float]:
    """For the largest shape of the size, a little larger than the one that is timed; what is measured of the
    coding has the autoencoder's own weights in it, half a GiB."""
    from stoker.models.talking_video.memory import GIB, Network, work_of

    work = work_of(Network(5120, 13824, 96), size, SHAPE.frames)
    return {"coding": round(work.coding / GIB, 1), "sampling": round(work.sampling / GIB, 1)}


def sampler_row(name: str, step: float, flops: float, picture: float) -> dict[str, float]:
    """Seconds of a forward, of a second of video by the network alone and with the autoencoder."""
    count, guidance = SAMPLERS[name]
    network = step * count / (SHAPE.step / FPS)
    return {
        "forward_s": round(step / len(forwards(guidance)), 4),
        "network_s_per_s": round(network, 2),
        "all_s_per_s": round(network + picture / (SHAPE.step / FPS), 2),
        "share": round(floor_seconds(flops, name) / network, 3),
    }


def random_network(make: Callable[[], Any], device: str, dtype: Any) -> Any:
    """Made on the device itself: 38 GB need not pass through the host."""
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


def fastest_attention(network: Any, size: str) -> tuple[str, dict[str, float]]:
    """The names that work here, by milliseconds for one block's self-attention."""
    import torch
    from diffusers.models.attention_dispatch import dispatch_attention_fn

    config = network.config
    shape = (1, tokens_of(size), config.num_attention_heads, config.attention_head_dim)
    given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    race: dict[str, float] = {}
    for name in ("_native_cudnn", "_native_flash", "native"):
        try:
            runs = [timed(lambda name=name: dispatch_attention_fn(*given, backend=name)) for _ in range(5)]
        except (RuntimeError, ValueError, ImportError) as error:
            print(f"  attention {name} does not work here: {error}")
            continue
        race[name] = round(statistics.median(runs[2:]) * 1000, 2)
    return min(race, key=lambda name: race[name]), race


def step_seconds(network: Any, size: str, sampler: str, steps: int) -> float:
    """Of one step of the real loop; the first, which compiles, is not counted."""
    import torch

    from stoker.models.talking_video.sampling import Conditions, denoised

    device, dtype = str(network.device), network.dtype
    seen, _, text, picture, audio = inputs_of(network, size, device, dtype)
    channels = network.config.out_channels
    noise, still = seen[:, :channels].float(), seen[:, channels:]
    conditions = Conditions(text, torch.zeros_like(text), picture, still, audio, torch.zeros_like(audio))
    known = noise[:, :, : latents_of(SHAPE.motion)].clone()
    times = []

    def on_step(done: int) -> bool:
        synchronize()
        times.append(time.perf_counter())
        return True

    guidance = SAMPLERS[sampler][1]
    with torch.inference_mode():
        denoised(network, conditions, noise, known, levels(steps + 1, 7.0), guidance, on_step)
    return statistics.median(later - now for now, later in pairwise(times))


def autoencoder_seconds(size: str, device: str = "cuda") -> dict[str, float]:
    """Of a chunk: its frames decoded, its motion frames encoded."""
    import torch
    from diffusers import AutoencoderKLWan

    from stoker.models.talking_video.frames_from_latents import decoded, encoded

    vae = AutoencoderKLWan().to(device).eval()
    height, width = SIZES[size]
    latents = torch.randn(
        1, vae.config.z_dim, latents_of(SHAPE.frames), height // 8, width // 8, device=device
    )
    motion = torch.rand(1, 3, SHAPE.motion, height, width, device=device) * 2 - 1
    with torch.inference_mode():
        works = {"decode": lambda: list(decoded(vae, latents)), "encode": lambda: encoded(vae, motion)}
        return {name: round(min(timed(work) for _ in range(2)), 3) for name, work in works.items()}


def timed(work: Callable[[], object]) -> float:
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


# With talk-tiny on the CPU


class Times:
    """Seconds of processor time by name, of calls that do not lie in one another."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.spent[name] += time.process_time() - start

    def watch(self, name: str, module: Any) -> None:
        """Every call of a part of the model."""
        starts: list[float] = []
        module.register_forward_pre_hook(lambda *given: starts.append(time.process_time()))

        def after(*given: object) -> None:
            self.spent[name] += time.process_time() - starts.pop()

        module.register_forward_hook(after)


def tiny(seconds: float) -> dict[str, Any]:
    """From two files on disk to a checked film, without the fetching and the safety checker."""
    import torch

    from stoker.models.talking_video import loading
    from stoker.models.talking_video.tiny import build

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, times = Path(name), Times()
        build(folder / "weights")
        talker = loading.load(folder / "weights", "cpu", PROFILES["tiny"])
        for what, module in {
            "network": talker.network,
            "network: the voice's projector": talker.network.audio_proj,
            "autoencoder: decode": talker.autoencoder.decoder,
            "autoencoder: encode": talker.autoencoder.encoder,
            "speech: convolutions": talker.speech_encoder.feature_extractor,
            "speech: layers": talker.speech_encoder.encoder,
            "words": talker.text_encoder,
            "picture tokens": talker.picture_encoder,
        }.items():
            times.watch(what, module)
        make_inputs(folder, seconds)
        start, cpu = time.perf_counter(), time.process_time()
        first, frames = film_of(talker, folder, times)
        whole, busy = time.perf_counter() - start, time.process_time() - cpu
    times.spent["the rest"] = busy - sum(times.spent.values())
    parts = sorted(times.spent.items(), key=lambda item: -item[1])
    return {
        "seconds": seconds,
        "frames": frames,
        "took_s": round(whole, 2),
        "cpu_s": round(busy, 2),
        "seconds_per_second": {"cpu": round(busy / seconds, 2), "clock": round(whole / seconds, 2)},
        "first_piece_s": {"cpu": round(first[0], 2), "clock": round(first[1], 2)},
        "parts_s": {name: round(spent, 3) for name, spent in parts},
    }


def make_inputs(folder: Path, seconds: float) -> None:
    """A slope of colours, and a wavering tone."""
    from PIL import Image

    Image.linear_gradient("L").resize((512, 512)).convert("RGB").save(folder / "face.png")
    rate = 22_050
    with wave.open(str(folder / "voice.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        for place in range(round(seconds * rate)):
            height = 0.3 * math.sin(place / rate * 1400) * math.sin(place / rate * 9)
            out.writeframesraw(round(height * 32_000).to_bytes(2, "little", signed=True))


def film_of(talker: Any, folder: Path, times: Times) -> tuple[tuple[float, float], int]:
    """Seconds until the first piece, of the processor and the clock; and how many frames."""
    import torch

    from stoker.models.talking_video import handler, picture, pipeline, voice
    from stoker.models.talking_video.film import Film
    from stoker.models.talking_video.speech import EncodedSpeech

    start = [time.process_time(), time.perf_counter()]
    first: list[float] = []
    profile = PROFILES["tiny"]
    with times.of("reading the files"):
        bucket, pixels = picture.cut(picture.opened(folder / "face.png"), "480p", profile.shrink)
        heard = voice.heard(folder / "voice.wav", folder)
    scene = pipeline.see(
        talker, "somebody speaks", torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1
    )
    speech = EncodedSpeech(talker.speech_encoder, heard.samples, heard.frames)
    film = Film(folder, folder / "voice.wav", bucket.width, bucket.height, heard.frames)
    for frames in pipeline.talk(talker, scene, speech, profile, "480p", 1, lambda step: True):
        with times.of("scaling up"):
            large = handler._pixels(frames, bucket)
        with times.of("film"):
            film.add(large)
            if film.take() and not first:
                first = [time.process_time(), time.perf_counter()]
    with times.of("film: finish and check"):
        film.finish()
    first = first or [time.process_time(), time.perf_counter()]
    return (first[0] - start[0], first[1] - start[1]), heard.frames


def show_tiny(found: dict[str, Any]) -> None:
    rate, first = found["seconds_per_second"], found["first_piece_s"]
    print(
        f"{found['seconds']} s of video in {found['cpu_s']} s of one thread ({found['took_s']} by the clock):"
    )
    print(f"  {rate['cpu']} s/s ({rate['clock']}); first piece after {first['cpu']} s ({first['clock']})")
    for name, spent in found["parts_s"].items():
        print(f"  {name:32}{spent:8.3f} s {spent / found['cpu_s']:7.1%}")


def machine() -> dict[str, Any]:
    import torch

    about: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.cuda.is_available():
        about["device"] = torch.cuda.get_device_name()
    return about | {"cores": os.cpu_count(), "load": [round(load, 2) for load in os.getloadavg()]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["floor", "gpu", "tiny"])
    parser.add_argument("--size", choices=list(SIZES), default="480p", help="of `gpu`")
    parser.add_argument("--steps", type=int, default=2, help="of `gpu`: how many are timed")
    parser.add_argument(
        "--tuned", action="store_true", help="of `gpu`: compiled, with the quickest attention"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of `tiny`")
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    options = parser.parse_args()
    about, key = machine(), options.what
    if options.what == "floor":
        show_floor(found := floor())
    elif options.what == "tiny":
        show_tiny(found := tiny(options.seconds))
    else:
        key = f"gpu {options.size}" + (" tuned" if options.tuned else "")
        print(json.dumps(found := gpu(options.size, options.steps, options.tuned)))
    print(f"  {json.dumps(about)}")
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(kept | {key: found | {"machine": about}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
