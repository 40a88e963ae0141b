"""From a verified folder to a Talker: every part where it belongs, nothing read but safetensors.

    <folder>/transformer      a whole TalkingTransformer3DModel, or Wan's base (diffusers' or its own layout)
             adapter/         InfiniteTalk's file, beside a base
             distilled/       a LoRA that a profile may name
             vae  text_encoder  tokenizer  image_encoder  audio_encoder

The network is built on torch's meta device, and each tensor of its files goes where it belongs as it is
read. On a GPU `memory` decides beforehand what stays there; on a CPU nothing moves.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.models.talking_video import memory
from stoker.models.talking_video.memory import Placement, Plan
from stoker.models.talking_video.pipeline import Talker
from stoker.models.talking_video.profiles import PROFILES, Profile
from stoker.models.talking_video.sizes import BUCKETS

if TYPE_CHECKING:
    import torch

__all__ = ["DoesNotFit", "load", "plan_for"]

WHOLE = "TalkingTransformer3DModel"


class DoesNotFit(MemoryError):
    """No size of video fits on the device; the text has the numbers."""


def load(folder: Path, device: str, profile: Profile = PROFILES["exact"], plan: Plan | None = None) -> Talker:
    """bfloat16 on a GPU, but float16 what looks at the picture, as published; float32 on a CPU. Never asks
    the network. `plan`: else decided by what is free.

    Raises wan_weights.WrongWeights, DoesNotFit.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import diffusers
    import torch
    import transformers

    for library in (transformers, diffusers):
        library.utils.logging.disable_progress_bar()
        library.utils.logging.set_verbosity_error()  # their warnings quote prompts
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    plan = plan or (Plan(Placement.RESIDENT) if device == "cpu" else _planned(folder, device, profile))
    rest = None if plan.placement is Placement.RESIDENT else "cpu"

    def part(kind: Any, name: str, dtype: Any = dtype, at: str = device) -> Any:
        return _read(kind, folder / name, dtype).to(at).eval()

    loaded_at = "cpu" if plan.placement is Placement.BY_BLOCKS else device
    looks = torch.float32 if device == "cpu" else torch.float16
    return Talker(
        network=_placed(_network(folder, dtype, profile, loaded_at), device, plan.placement),
        autoencoder=_quickened(part(diffusers.AutoencoderKLWan, "vae", torch.float32), device),
        text_encoder=part(transformers.UMT5EncoderModel, "text_encoder", at=rest or device),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True),
        picture_encoder=part(transformers.CLIPVisionModel, "image_encoder", looks, rest or device),
        speech_encoder=_ear(part(transformers.Wav2Vec2Model, "audio_encoder", torch.float32), folder),
        device=device,
        rest=rest,
        refused=plan.refused,
    )


def _read(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    from stoker.models.talking_video.wan_weights import check_whole

    read, told = kind.from_pretrained(folder, local_files_only=True, dtype=dtype, output_loading_info=True)
    check_whole(folder.name, told["missing_keys"])
    return read


def _ear(encoder: Any, folder: Path) -> Any:
    """Its configuration says, too, what its preprocessor's does: how loud a voice it was trained on."""
    said = folder / "audio_encoder" / "preprocessor_config.json"
    config = json.loads(said.read_text()) if said.exists() else {}
    encoder.config.do_normalize = config.get("do_normalize", True)
    return encoder


def _quickened(autoencoder: Any, device: str) -> Any:
    from stoker.models.talking_video.quick_on_cpu import quicken

    return quicken(autoencoder) if device == "cpu" else autoencoder


def _planned(folder: Path, device: str, profile: Profile) -> Plan:
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    plan = plan_for(folder, profile, free)
    if plan.refused.keys() == BUCKETS.keys():
        raise DoesNotFit("; ".join(plan.refused.values()))
    return plan


def plan_for(folder: Path, profile: Profile, free: int) -> Plan:
    """What `memory` decides for the weights of a folder on a GPU with so many free bytes."""
    config = _config(folder)
    autoencoder = json.loads((folder / "vae" / "config.json").read_text())
    network = memory.Network(
        width=config["num_attention_heads"] * config["attention_head_dim"],
        feed_forward=config["ffn_dim"],
        autoencoder_width=autoencoder["base_dim"],
    )
    works = {size: memory.work_of(network, size, profile.shape.frames) for size in BUCKETS}
    return memory.decide(parts_of(folder), works, free)


def parts_of(folder: Path) -> memory.Parts:
    """What each part weighs on a GPU, from the headers of its files."""
    from stoker.models.talking_video.wan_weights import kept_in_float32

    network = {
        name: count * (4 if kept_in_float32(name) else 2)
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
        picture_encoder=weight("image_encoder", 2),
    )


def _numbers(folder: Path) -> Iterator[tuple[str, int]]:
    """Each tensor of a folder's files by our name, and how many numbers it has."""
    from safetensors import safe_open

    from stoker.models.talking_video.wan_weights import our_names

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            counts = {key: math.prod(opened.get_slice(key).get_shape()) for key in list(opened.keys())}
        names = our_names(counts)
        yield from ((names[key], count) for key, count in counts.items())


def _placed(network: Any, device: str, placement: Placement) -> Any:
    """What projects the audio is called by itself, before the network: it is in no group."""
    if placement is not Placement.BY_BLOCKS:
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


def _network(folder: Path, dtype: torch.dtype, profile: Profile, device: str = "cpu") -> Any:
    from stoker.models.talking_video.lora import fuse_file

    network = _unchanged_network(folder, dtype, device)
    if profile.lora is not None:
        fuse_file(network, folder / profile.lora, profile.lora_scale)
    return network.eval()


def _unchanged_network(folder: Path, dtype: torch.dtype, device: str) -> Any:
    from stoker.models.talking_video.transformer import TalkingTransformer3DModel
    from stoker.models.talking_video.wan_weights import load_into

    config = _config(folder)
    if config["_class_name"] == WHOLE:
        return _read(TalkingTransformer3DModel, folder / "transformer", dtype).to(device)
    import torch

    known = {name: value for name, value in config.items() if not name.startswith("_")}
    with torch.device("meta"):
        network = TalkingTransformer3DModel(**known)
    folders = (folder / "transformer", folder / "adapter")
    load_into(network, [file for one in folders for file in sorted(one.glob("*.safetensors"))], dtype, device)
    return _with_rotary(network).to(device)


def _config(folder: Path) -> dict[str, Any]:
    from stoker.models.talking_video.wan_weights import our_config

    return our_config(json.loads((folder / "transformer" / "config.json").read_text()))


def _with_rotary(network: Any) -> Any:
    """The rotary tables are computed, not loaded: on the meta device they hold nothing."""
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    config = network.config
    network.rope = WanRotaryPosEmbed(config.attention_head_dim, config.patch_size, config.rope_max_seq_len)
    return network
