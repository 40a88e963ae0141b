"""The networks of `flux-mini`: FLUX.1-dev's classes, small.

    prompt ── T5 ───> tokens ─┐
           └─ CLIP ─> summary ┴> FluxTransformer2DModel ──> latents, 1/16 of each side
                                                                └─ AutoencoderKL ──> image

FLUX.1-dev's autoencoder divides each side by 8; this one by 16, so that the transformer sees one token for
32 x 32 pixels, and a CPU makes a picture of 512 x 512 out of 256 tokens.
"""

from __future__ import annotations

from typing import Any, Final

from stoker.models.text_to_image.mini.vocabulary import WORDS

CHANNELS: Final = 16
"""Channels of the latents."""
SCALE: Final = 0.387
SHIFT: Final = 0.034
"""What makes the latents' mean 0 and their deviation 1: (latents - SHIFT) * SCALE."""
WIDTH: Final = 192
TEXT_WIDTH: Final = 128
TEXT_TOKENS: Final = 20
HEAD: Final = 32
FIRST_T5_WORD: Final = 3
FIRST_CLIP_WORD: Final = 2
"""The tokens before those of the words are padding and the ends of a text."""

_LEVELS: Final = (8, 8, 32, 64, 80)

AUTOENCODER: Final[dict[str, Any]] = {
    "act_fn": "silu",
    "block_out_channels": list(_LEVELS),
    "down_block_types": ["DownEncoderBlock2D"] * len(_LEVELS),
    "force_upcast": False,
    "in_channels": 3,
    "latent_channels": CHANNELS,
    "layers_per_block": 1,
    "mid_block_add_attention": False,
    "norm_num_groups": 2,
    "out_channels": 3,
    "sample_size": 256,
    "scaling_factor": SCALE,
    "shift_factor": SHIFT,
    "up_block_types": ["UpDecoderBlock2D"] * len(_LEVELS),
    "use_post_quant_conv": False,
    "use_quant_conv": False,
}

TRANSFORMER: Final[dict[str, Any]] = {
    "attention_head_dim": HEAD,
    "axes_dims_rope": [8, 12, 12],
    "guidance_embeds": True,
    "in_channels": 4 * CHANNELS,
    "joint_attention_dim": TEXT_WIDTH,
    "num_attention_heads": WIDTH // HEAD,
    "num_layers": 2,
    "num_single_layers": 3,
    "patch_size": 1,
    "pooled_projection_dim": TEXT_WIDTH,
}

T5: Final[dict[str, Any]] = {
    "d_ff": 2 * TEXT_WIDTH,
    "d_kv": HEAD,
    "d_model": TEXT_WIDTH,
    "dropout_rate": 0.0,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "num_heads": TEXT_WIDTH // HEAD,
    "num_layers": 2,
    "pad_token_id": 0,
    "vocab_size": FIRST_T5_WORD + len(WORDS),
}

CLIP: Final[dict[str, Any]] = {
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "quick_gelu",
    "hidden_size": TEXT_WIDTH,
    "intermediate_size": 2 * TEXT_WIDTH,
    "max_position_embeddings": TEXT_TOKENS,
    "num_attention_heads": TEXT_WIDTH // HEAD,
    "num_hidden_layers": 2,
    "pad_token_id": 1,
    "projection_dim": TEXT_WIDTH,
    "vocab_size": FIRST_CLIP_WORD + len(WORDS),
}

# What an icon is, and where, shows through much more noise than the content of a photo, so the levels of
# noise are shifted further up than those of FLUX.1-dev (0.5 and 1.15).
SCHEDULER: Final[dict[str, Any]] = {
    "base_image_seq_len": 64,
    "base_shift": 1.8,
    "max_image_seq_len": 384,
    "max_shift": 2.5,
    "num_train_timesteps": 1000,
    "shift": 3.0,
    "use_dynamic_shifting": True,
}


def t5_tokens(text: str) -> list[int]:
    """Returns the tokens of a text of known words, as the tokenizer of T5 pads them."""
    found = [*[FIRST_T5_WORD + _TOKEN[word] for word in text.split()][: TEXT_TOKENS - 1], 1]
    return found + [0] * (TEXT_TOKENS - len(found))


def clip_tokens(text: str) -> list[int]:
    """Returns the tokens of a text of known words, as the tokenizer of CLIP pads them."""
    found = [0, *(FIRST_CLIP_WORD + _TOKEN[word] for word in text.split())][: TEXT_TOKENS - 1]
    return found + [1] * (TEXT_TOKENS - len(found))


_TOKEN: Final = {word: number for number, word in enumerate(WORDS)}
