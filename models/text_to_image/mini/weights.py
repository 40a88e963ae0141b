"""The weights of `flux-mini`, which are part of this package: trained by `training/flux_mini`, half
precision, in `trained`. The other files of the pipeline's folder are made here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stoker.models.made_weights import json_bytes, write_files
from stoker.models.text_to_image import tiny
from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.vocabulary import WORDS

TRAINED: Final = Path(__file__).parent / "trained"

TENSORS: Final = {
    "transformer": "transformer/diffusion_pytorch_model.safetensors",
    "vae": "vae/diffusion_pytorch_model.safetensors",
    "clip": "text_encoder/model.safetensors",
    "t5": "text_encoder_2/model.safetensors",
}
"""The file of each trained network below the pipeline's folder."""


def build(folder: Path) -> None:
    """Writes all files below `folder`, which is created if it is missing."""
    tensors = {path: (TRAINED / f"{name}.safetensors").read_bytes() for name, path in TENSORS.items()}
    write_files(folder, texts() | tensors)


def texts() -> dict[str, bytes]:
    """Returns every file that is not a network's weights, by its path."""
    configs = {
        "model_index.json": tiny.MODEL_INDEX,
        "scheduler/scheduler_config.json": _of("FlowMatchEulerDiscreteScheduler", networks.SCHEDULER),
        "transformer/config.json": _of("FluxTransformer2DModel", networks.TRANSFORMER),
        "vae/config.json": _of("AutoencoderKL", networks.AUTOENCODER),
        "text_encoder/config.json": {
            "architectures": ["CLIPTextModel"],
            "model_type": "clip_text_model",
            **networks.CLIP,
        },
        "text_encoder_2/config.json": {
            "architectures": ["T5EncoderModel"],
            "model_type": "t5",
            **networks.T5,
        },
        "tokenizer/tokenizer_config.json": _clip_tokenizer(),
        "tokenizer/vocab.json": {tiny.CLIP_START: 0, tiny.CLIP_END: 1},
    }
    found = {name: json_bytes(config) for name, config in configs.items()}
    t5 = tiny.t5_tokenizer_files(_t5_vocabulary(), networks.TEXT_TOKENS)
    found |= {f"tokenizer_2/{name}": data for name, data in t5.items()}
    return found | {"tokenizer/merges.txt": b"#version: 0.2\n"}


def _of(library_class: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {"_class_name": library_class, "_diffusers_version": "0.42.1", **config}


def _clip_tokenizer() -> dict[str, Any]:
    """Returns a tokenizer in which each word is an added token: byte pairs would need a merge for every
    prefix."""
    flags = {"single_word": True, "lstrip": True, "rstrip": False, "normalized": False, "special": False}
    words = {str(number): {"content": word, **flags} for number, word in enumerate(WORDS, 2)}
    more = {"model_max_length": networks.TEXT_TOKENS, "added_tokens_decoder": words}
    return {**tiny.CLIP_TOKENIZER, **more}


def _t5_vocabulary() -> list[tuple[str, float]]:
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    return [*special, *(("▁" + word, -2.0) for word in WORDS)]
