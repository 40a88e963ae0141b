"""From a verified folder to a Talker: every part on its device, nothing read but safetensors.

    <folder>/transformer      a whole TalkingTransformer3DModel, or Wan's base (diffusers' or its own layout)
             adapter/         InfiniteTalk's file, beside a base
             vae  text_encoder  tokenizer  image_encoder  audio_encoder

The network is built on torch's meta device and its files assigned to it: it is in memory once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stoker.models.talking_video.pipeline import Talker

__all__ = ["load"]

WHOLE = "TalkingTransformer3DModel"


def load(folder: Path, device: str) -> Talker:
    """bfloat16 on a GPU, float32 on a CPU. Never asks the network. Raises wan_weights.WrongWeights."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import diffusers
    import torch
    import transformers

    for library in (transformers, diffusers):
        library.utils.logging.disable_progress_bar()
        library.utils.logging.set_verbosity_error()  # their warnings quote prompts
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def part(kind: Any, name: str, dtype: Any = dtype) -> Any:
        return kind.from_pretrained(folder / name, local_files_only=True, dtype=dtype).to(device).eval()

    return Talker(
        network=_network(folder, dtype).to(device).eval(),
        autoencoder=part(diffusers.AutoencoderKLWan, "vae", torch.float32),
        text_encoder=part(transformers.UMT5EncoderModel, "text_encoder"),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True),
        picture_encoder=part(transformers.CLIPVisionModel, "image_encoder"),
        speech_encoder=part(transformers.Wav2Vec2Model, "audio_encoder", torch.float32),
        device=device,
    )


def _network(folder: Path, dtype: Any) -> Any:
    from stoker.models.talking_video.transformer import TalkingTransformer3DModel
    from stoker.models.talking_video.wan_weights import load_into

    config = json.loads((folder / "transformer" / "config.json").read_text())
    if config["_class_name"] == WHOLE:
        return TalkingTransformer3DModel.from_pretrained(
            folder / "transformer", local_files_only=True, torch_dtype=dtype
        )
    import torch

    known = {name: value for name, value in config.items() if not name.startswith("_")}
    with torch.device("meta"):
        network = TalkingTransformer3DModel(**known)
    folders = (folder / "transformer", folder / "adapter")
    load_into(network, [file for one in folders for file in sorted(one.glob("*.safetensors"))])
    return _with_rotary(network).to(dtype)


def _with_rotary(network: Any) -> Any:
    """The rotary tables are computed, not loaded: on the meta device they hold nothing."""
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    config = network.config
    network.rope = WanRotaryPosEmbed(config.attention_head_dim, config.patch_size, config.rope_max_seq_len)
    return network
