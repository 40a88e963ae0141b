"""The loading of a VideoPipeline from a verified folder. Weights are read from safetensors only.

    <folder>/transformer      a whole TalkingTransformer3DModel, or Wan's base (diffusers' or its own layout)
             adapter/         InfiniteTalk's file, if `transformer` holds a base
             distilled/       a LoRA that sampling settings may name
             vae  text_encoder  tokenizer  image_encoder  audio_encoder

accelerate builds the network without weights, and each tensor of its files is moved to its device as it is
read. On a GPU `memory` decides beforehand which parts stay there; on a CPU nothing moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.models import libraries
from stoker.models.cold_start import stage
from stoker.models.speed_ups import attention
from stoker.models.talking_video import memory
from stoker.models.talking_video.memory import MemoryPlan, MemoryUse
from stoker.models.talking_video.pipeline import VideoPipeline
from stoker.models.talking_video.sampling.settings import SETTINGS, SamplingSettings
from stoker.models.talking_video.video.sizes import BUCKETS
from stoker.models.weights import alignment

if TYPE_CHECKING:
    import torch


WHOLE = "TalkingTransformer3DModel"


class DoesNotFit(MemoryError):
    """The error that no size of video fits on the device; the message has the numbers."""


def load(
    folder: Path,
    device: str,
    settings: SamplingSettings = SETTINGS["published"],
    plan: MemoryPlan | None = None,
    *,
    small: bool = False,
) -> VideoPipeline:
    """Loads in bfloat16 on a GPU, but the image encoder in float16, as published; in float32 on a CPU.
    Downloads nothing. Without a `plan`, the device's free memory decides. `small`: the network's weights are
    kept in float8 and computed with in its own format.

    Raises network.weights.WrongWeights, DoesNotFit, attention.AttentionUnavailable.
    """
    libraries.prepare()
    import accelerate
    import diffusers
    import torch
    import transformers

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    if plan is None and device == "cpu":
        plan = MemoryPlan(MemoryUse.RESIDENT)
    elif plan is None:
        plan = _planned(folder, device, settings, small=small)
    offloaded: list[Any] = []

    def part(kind: Any, name: str, dtype: Any = dtype) -> Any:
        return _read(kind, folder / name, dtype).to(device).eval()

    def encoder(kind: Any, name: str, dtype: Any = dtype) -> Any:
        """Returns the encoder, on the device permanently or only while it runs."""
        if plan.placement is MemoryUse.RESIDENT:
            return part(kind, name, dtype)
        read, hook = accelerate.cpu_offload_with_hook(_read(kind, folder / name, dtype).eval(), device)
        offloaded.append(hook)
        return read

    passes_host = small or plan.placement is MemoryUse.BY_BLOCKS
    with stage("read"):
        network = _network(folder, dtype, settings, "cpu" if passes_host else device)
    if small:
        network.enable_layerwise_casting(torch.float8_e4m3fn, network.dtype)
    attention.choose(network, device)
    image_dtype = torch.float32 if device == "cpu" else torch.float16
    pipeline = VideoPipeline(
        network=_placed(network, device, plan.placement),
        autoencoder=_faster_on_cpu(part(diffusers.AutoencoderKLWan, "vae", torch.float32), device),
        text_encoder=encoder(transformers.UMT5EncoderModel, "text_encoder"),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True),
        image_encoder=encoder(transformers.CLIPVisionModel, "image_encoder", image_dtype),
        speech_encoder=_speech_encoder(
            part(transformers.Wav2Vec2Model, "audio_encoder", torch.float32), folder
        ),
        device=device,
        offloaded=offloaded,
        refused=plan.refused,
    )
    if device == "cpu":
        for one in pipeline.networks():
            alignment.align(one)
    return pipeline


def _read(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    from stoker.models.talking_video.network.weights import check_whole

    part, info = kind.from_pretrained(folder, local_files_only=True, dtype=dtype, output_loading_info=True)
    check_whole(folder.name, info["missing_keys"])
    return part


def _speech_encoder(encoder: Any, folder: Path) -> Any:
    """Sets the encoder's `do_normalize` from the configuration of its preprocessor."""
    file = folder / "audio_encoder" / "preprocessor_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    encoder.config.do_normalize = config.get("do_normalize", True)
    return encoder


def _faster_on_cpu(autoencoder: Any, device: str) -> Any:
    from stoker.models.talking_video.network.quick_on_cpu import quicken

    return quicken(autoencoder) if device == "cpu" else autoencoder


def _planned(folder: Path, device: str, settings: SamplingSettings, *, small: bool) -> MemoryPlan:
    import torch

    free_bytes, _ = torch.cuda.mem_get_info(device)
    plan = plan_for(folder, settings, free_bytes, small=small)
    if plan.refused.keys() == BUCKETS.keys():
        raise DoesNotFit("; ".join(plan.refused.values()))
    return plan


def plan_for(folder: Path, settings: SamplingSettings, free_bytes: int, *, small: bool = False) -> MemoryPlan:
    """Returns the decision of `memory` for the weights of a folder on a GPU with so many free bytes."""
    config = _config(folder)
    autoencoder = json.loads((folder / "vae" / "config.json").read_text())
    network = memory.Network(
        width=config["num_attention_heads"] * config["attention_head_dim"],
        feed_forward=config["ffn_dim"],
        autoencoder_width=autoencoder["base_dim"],
    )
    works = {size: memory.work_of(network, size, settings.shape.frames) for size in BUCKETS}
    return memory.decide(parts_of(folder, small=small), works, free_bytes)


def parts_of(folder: Path, *, small: bool = False) -> memory.Parts:
    """Returns the bytes of each part on a GPU, by the headers of its files. `small`: the blocks' in
    float8."""
    from stoker.models.talking_video.network.weights import kept_in_float32

    network = {
        name: count * (4 if kept_in_float32(name) else 1 if small and name.startswith("blocks.") else 2)
        for one in ("transformer", "adapter")
        for name, count in _numbers(folder / one)
    }
    blocks: dict[str, int] = {}
    for name, size in network.items():
        if name.startswith("blocks."):
            number = name.split(".")[1]
            blocks[number] = blocks.get(number, 0) + size

    def weight(part: str, width: int) -> int:
        return width * sum(count for _, count in _numbers(folder / part))

    return memory.Parts(
        network=sum(network.values()),
        blocks=sum(blocks.values()),
        block=max(blocks.values(), default=0),
        autoencoder=weight("vae", 4),
        speech_encoder=weight("audio_encoder", 4),
        text_encoder=weight("text_encoder", 2),
        image_encoder=weight("image_encoder", 2),
    )


def _numbers(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields the name that the network has for each tensor of a folder's files, and the number of its
    elements."""
    from safetensors import safe_open

    from stoker.models.talking_video.network.weights import our_names

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            counts = {key: math.prod(opened.get_slice(key).get_shape()) for key in list(opened.keys())}
        names = our_names(counts)
        yield from ((names[key], count) for key, count in counts.items())


def _placed(network: Any, device: str, placement: MemoryUse) -> Any:
    """Moves the network to the device, or sets up its blocks to move in turn. The audio projector stays on
    the device: it is called by itself, before the network."""
    if placement is not MemoryUse.BY_BLOCKS:
        return network.to(device)
    import torch

    projector = network.audio_proj
    del network.audio_proj
    network.enable_group_offload(
        torch.device(device),
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=torch.device(device).type == "cuda",
    )
    network.audio_proj = projector.to(device)
    return network


def _network(folder: Path, dtype: torch.dtype, settings: SamplingSettings, device: str = "cpu") -> Any:
    from stoker.models.talking_video.network.lora import fuse_file

    network = _unchanged_network(folder, dtype, device)
    if settings.lora is not None:
        fuse_file(network, folder / settings.lora, settings.lora_scale)
    return network.eval()


def _unchanged_network(folder: Path, dtype: torch.dtype, device: str) -> Any:
    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel
    from stoker.models.talking_video.network.weights import load_into

    config = _config(folder)
    if config["_class_name"] == WHOLE:
        return _read(TalkingTransformer3DModel, folder / "transformer", dtype).to(device)
    import accelerate

    known = {name: value for name, value in config.items() if not name.startswith("_")}
    with accelerate.init_empty_weights():
        network = TalkingTransformer3DModel(**known)
    folders = (folder / "transformer", folder / "adapter")
    load_into(network, [file for one in folders for file in sorted(one.glob("*.safetensors"))], dtype, device)
    return network.to(device)


def _config(folder: Path) -> dict[str, Any]:
    from stoker.models.talking_video.network.weights import our_config

    return our_config(json.loads((folder / "transformer" / "config.json").read_text()))
