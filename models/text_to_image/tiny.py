"""The folder of `flux-tiny`, made byte for byte the same on every machine.

    python -P -m stoker.models.text_to_image.tiny FOLDER

The classes are those of FLUX.1-dev (transformer, autoencoder, CLIP and T5 encoders, both tokenizers, the
flow-matching scheduler), so that all code around a real model runs on a CPU in well under a second.
`weights.lock` holds the digest of each file, so this module writes them itself: the libraries' files change
with their versions. Imports no torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from stoker.models.made_weights import json_bytes, safetensors_bytes, write_files
from stoker.models.text_to_image import tiny_weights as numbers

CLIP_START, CLIP_END = "<|startoftext|>", "<|endoftext|>"
_CHARACTERS = [chr(code) for code in range(33, 127)]


def build(folder: Path) -> None:
    """Writes all files below `folder`, which is created if it is missing."""
    write_files(folder, files())


def files() -> dict[str, bytes]:
    """Returns every file by its path."""
    clip, t5 = clip_vocabulary(), t5_vocabulary()
    texts = {
        "model_index.json": MODEL_INDEX,
        "scheduler/scheduler_config.json": _SCHEDULER,
        "transformer/config.json": _TRANSFORMER,
        "vae/config.json": _VAE,
        "text_encoder/config.json": _clip_config(len(clip)),
        "text_encoder_2/config.json": _t5_config(len(t5)),
        "tokenizer/tokenizer_config.json": CLIP_TOKENIZER,
        "tokenizer/vocab.json": clip,
    }
    tensors = {
        "transformer/diffusion_pytorch_model.safetensors": numbers.transformer(),
        "vae/diffusion_pytorch_model.safetensors": numbers.autoencoder(),
        "text_encoder/model.safetensors": numbers.clip(len(clip)),
        "text_encoder_2/model.safetensors": numbers.t5(len(t5)),
    }
    made = {name: json_bytes(value) for name, value in texts.items()}
    made |= {name: safetensors_bytes(weights) for name, weights in tensors.items()}
    made |= {f"tokenizer_2/{name}": data for name, data in t5_tokenizer_files().items()}
    return made | {"tokenizer/merges.txt": b"#version: 0.2\n"}


def t5_tokenizer_files(
    vocabulary: list[tuple[str, float]] | None = None, length: int = 512
) -> dict[str, bytes]:
    """Returns a tokenizer of T5's kind for these tokens; without them, with a token for each ASCII
    character."""
    return {
        "tokenizer_config.json": json_bytes({**_T5_TOKENIZER, "model_max_length": length}),
        "tokenizer.json": json_bytes(_t5_tokenizer(vocabulary or t5_vocabulary())),
    }


def clip_vocabulary() -> dict[str, int]:
    """Returns two tokens for each character of byte-level BPE: within a word and at its end."""
    characters = byte_characters()
    tokens = [*characters, *(character + "</w>" for character in characters), CLIP_START, CLIP_END]
    return {token: index for index, token in enumerate(tokens)}


def byte_characters() -> list[str]:
    """Returns the visible character that byte-level BPE writes for each byte."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]


def t5_vocabulary() -> list[tuple[str, float]]:
    """Returns three special tokens, the token for a word's start, and every visible ASCII character."""
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    return [*special, ("▁", -2.0), *((character, -4.0) for character in _CHARACTERS)]


MODEL_INDEX = {
    "_class_name": "FluxPipeline",
    "_diffusers_version": "0.42.1",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}

_SCHEDULER = {
    "_class_name": "FlowMatchEulerDiscreteScheduler",
    "_diffusers_version": "0.42.1",
    "base_image_seq_len": 256,
    "base_shift": 0.5,
    "max_image_seq_len": 4096,
    "max_shift": 1.15,
    "num_train_timesteps": 1000,
    "shift": 3.0,
    "use_dynamic_shifting": True,
}

_TRANSFORMER = {
    "_class_name": "FluxTransformer2DModel",
    "_diffusers_version": "0.42.1",
    "attention_head_dim": numbers.HEAD,
    "axes_dims_rope": list(numbers.ROPE_AXES),
    "guidance_embeds": True,
    "in_channels": numbers.TOKEN,
    "joint_attention_dim": numbers.WIDTH,
    "num_attention_heads": numbers.HEADS,
    "num_layers": 1,
    "num_single_layers": 1,
    "patch_size": 1,
    "pooled_projection_dim": numbers.WIDTH,
}

_VAE = {
    "_class_name": "AutoencoderKL",
    "_diffusers_version": "0.42.1",
    "act_fn": "silu",
    "block_out_channels": [numbers.VAE_CHANNELS] * numbers.VAE_BLOCKS,
    "down_block_types": ["DownEncoderBlock2D"] * numbers.VAE_BLOCKS,
    "force_upcast": False,
    "in_channels": 3,
    "latent_channels": numbers.LATENTS,
    "layers_per_block": 1,
    "mid_block_add_attention": False,
    "norm_num_groups": 4,
    "out_channels": 3,
    "sample_size": 1024,
    "scaling_factor": 1.0,
    "shift_factor": 0.0,
    "up_block_types": ["UpDecoderBlock2D"] * numbers.VAE_BLOCKS,
    "use_post_quant_conv": False,
    "use_quant_conv": False,
}

CLIP_TOKENIZER = {
    "bos_token": CLIP_START,
    "eos_token": CLIP_END,
    "model_max_length": numbers.CLIP_LENGTH,
    "pad_token": CLIP_END,
    "tokenizer_class": "CLIPTokenizer",
    "unk_token": CLIP_END,
}

_T5_TOKENIZER = {
    "eos_token": "</s>",
    "extra_ids": 0,
    "model_max_length": 512,
    "pad_token": "<pad>",
    "tokenizer_class": "T5TokenizerFast",
    "unk_token": "<unk>",
}


def _clip_config(vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["CLIPTextModel"],
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "hidden_act": "quick_gelu",
        "hidden_size": numbers.WIDTH,
        "intermediate_size": 2 * numbers.WIDTH,
        "max_position_embeddings": numbers.CLIP_LENGTH,
        "model_type": "clip_text_model",
        "num_attention_heads": numbers.HEADS,
        "num_hidden_layers": 1,
        "pad_token_id": vocabulary - 1,
        "projection_dim": numbers.WIDTH,
        "vocab_size": vocabulary,
    }


def _t5_config(vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["T5EncoderModel"],
        "d_ff": 2 * numbers.WIDTH,
        "d_kv": numbers.HEAD,
        "d_model": numbers.WIDTH,
        "eos_token_id": 1,
        "feed_forward_proj": "gated-gelu",
        "is_encoder_decoder": True,
        "model_type": "t5",
        "num_heads": numbers.HEADS,
        "num_layers": 1,
        "pad_token_id": 0,
        "vocab_size": vocabulary,
    }


def _t5_tokenizer(vocabulary: list[tuple[str, float]]) -> dict[str, Any]:
    special = [token for token, _ in vocabulary[:3]]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    sequence, end = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [sequence, end],
            "pair": [sequence, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
        },
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocabulary, "byte_fallback": False},
    }


if __name__ == "__main__":
    build(Path(sys.argv[1]))
