"""`talk-tiny`: a folder of small made-up weights for the classes of the talking video, the same on every
machine.

Nothing here is trained. The weights of the text and image encoders are derived from hashes of the parameters'
names (see `made_weights`), scaled to the layer's width. The other weights are set by hand in `autoencoder`
and `network`. The names and shapes in `shapes.json` were read from the libraries' classes in CONFIGS, and a
test compares them, so that neither making nor checking these files imports torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from stoker.models import made_weights
from stoker.models.made_weights import json_bytes, safetensors_bytes, write_files
from stoker.models.talking_video.tiny import autoencoder, network
from stoker.models.text_to_image import tiny as text

WIDTH: Final = 16
LATENTS: Final = autoencoder.LATENTS

CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "transformer": {
        "_class_name": "TalkingTransformer3DModel",
        "_diffusers_version": "0.42.1",
        "num_attention_heads": network.HEADS,
        "attention_head_dim": network.HEAD,
        "in_channels": 4 + 2 * LATENTS,
        "out_channels": LATENTS,
        "text_dim": WIDTH,
        "freq_dim": 32,
        "ffn_dim": 64,
        "num_layers": network.BLOCKS,
        "image_dim": WIDTH,
        "added_kv_proj_dim": network.WIDTH,
        "audio_dim": WIDTH,
        "audio_layers": 2,
        "audio_tokens": 4,
        "audio_hidden": 16,
    },
    "vae": {
        "_class_name": "AutoencoderKLWan",
        "_diffusers_version": "0.42.1",
        "base_dim": autoencoder.BASE,
        "z_dim": LATENTS,
        "dim_mult": list(autoencoder.MULTIPLES),
        "num_res_blocks": 1,
        "latents_mean": [0.0] * LATENTS,
        "latents_std": [1.0] * LATENTS,
    },
    "text_encoder": {
        "architectures": ["UMT5EncoderModel"],
        "model_type": "umt5",
        "vocab_size": len(text.t5_vocabulary()),
        "d_model": WIDTH,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 1,
        "num_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
    },
    "image_encoder": {
        "architectures": ["CLIPVisionModel"],
        "model_type": "clip_vision_model",
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    },
    "audio_encoder": {
        "architectures": ["Wav2Vec2Model"],
        "model_type": "wav2vec2",
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "conv_dim": [8] * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    },
}
"""The configuration of each folder; what is left out has the class's default."""

WEIGHTS: Final[Mapping[str, str]] = {
    "transformer": "diffusion_pytorch_model.safetensors",
    "vae": "diffusion_pytorch_model.safetensors",
    "text_encoder": "model.safetensors",
    "image_encoder": "model.safetensors",
    "audio_encoder": "model.safetensors",
}


_DRAWN: Final = ("condition_embedder.text_embedder.", "condition_embedder.image_embedder.")
"""Besides the attention to text and image, the parts that keep the weights from hashes; these change the
video a little."""


def build(folder: Path) -> None:
    """Writes all files below `folder`, which is created if it is missing."""
    write_files(folder, files())


def files() -> dict[str, bytes]:
    """Returns every file by its path."""
    made = {f"{part}/config.json": json_bytes(config) for part, config in CONFIGS.items()}
    for part, shapes in _shapes().items():
        weights = {name: _numbers(f"{part}/{name}", shape) for name, shape in shapes.items()}
        _set_by_hand(part, weights)
        made[f"{part}/{WEIGHTS[part]}"] = safetensors_bytes(weights)
    return made | {f"tokenizer/{name}": data for name, data in text.t5_tokenizer_files().items()}


def _set_by_hand(part: str, weights: dict[str, made_weights.Array]) -> None:
    """Sets the weights of a part, unless it keeps those from hashes."""
    setter = {
        "vae": autoencoder.autoencoder,
        "audio_encoder": network.speech_encoder,
        "transformer": network.network,
    }.get(part)
    if setter is None:
        return
    for name, array in weights.items():
        if not name.startswith(_DRAWN) and ".attn2." not in name and not _passes_on(name, array.shape):
            array[...] = 0
    setter(weights)


def _shapes() -> dict[str, dict[str, list[int]]]:
    read = resources.files(__package__).joinpath("shapes.json").read_text(encoding="utf-8")
    shapes: dict[str, dict[str, list[int]]] = json.loads(read)
    return shapes


def _numbers(name: str, shape: list[int]) -> made_weights.Array:
    """Norms multiply by one, biases add zero, and a layer keeps the scale of its input."""
    leaf = name.rpartition(".")[2]
    if _passes_on(name, shape):
        return made_weights.full(1, *shape)
    if leaf == "bias" or len(shape) == 0:
        return made_weights.full(0, *shape)
    inputs = math.prod(shape[1:]) if len(shape) > 1 else shape[0]
    scale = 2.0 ** round(math.log2(math.sqrt(3 / inputs)))
    return np.asarray(made_weights.draw(f"{network.SALT}/{name}", *shape, scale=scale))


def _passes_on(name: str, shape: Sequence[int]) -> bool:
    leaf = name.rpartition(".")[2]
    return leaf == "gamma" or ("norm" in name and leaf == "weight" and len(shape) == 1)
