"""The weights of `flux-tiny`: small weights for FLUX's classes, the same bytes on every machine.

Nothing here is trained: the weights are derived from hashes of the parameters' names (see `made_weights`).
The images are patterns, and a few weights are set by hand so that they are worth looking at:

    noise ──x_embedder──> attention with a fixed query ──> velocity ──> latents ──> decoder ──> colours
                          and key: RoPE turns it into       x - blur(x)             each conv a small
                          a blur over the neighbourhood     - the prompt's hue      blur times a mix

so the noise becomes smooth areas, whose positions depend on the seed and whose colours on the prompt. This
module has the names, shapes and numbers; `tiny` writes the folder.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from stoker.models import made_weights
from stoker.models.made_weights import Array, full

Weights: TypeAlias = dict[str, Array]

WIDTH = 32
HEADS = 2
HEAD = WIDTH // HEADS
ROPE_AXES = (4, 6, 6)
"""The numbers of a head's channels for text position, row and column."""

LATENTS = 4
TOKEN = LATENTS * 4
"""A token of FLUX is a square of 2 x 2 latent pixels, channel by channel."""

VAE_CHANNELS = 8
VAE_BLOCKS = 6
"""The image is 2 ** (VAE_BLOCKS - 1) = 32 times the latents: 1024 x 1024 is 256 tokens, quick on a CPU."""

CLIP_LENGTH = 77
SALT = "stoker flux-tiny 1"

_BLUR: Array = np.float32(1 / 16) * np.outer((1, 2, 1), (1, 2, 1)).astype(np.float32)

_MEAN = np.kron(np.eye(LATENTS), np.full((4, 4), 0.25)).astype(np.float32)
"""Replaces a token's channels by their means over its four latent pixels."""


def draw(name: str, *shape: int, scale: float) -> Array:
    return made_weights.draw(f"{SALT}/{name}", *shape, scale=scale)


def linear(name: str, wide: int, narrow: int, scale: float) -> Weights:
    """Draws a dense layer `narrow -> wide` with a bias of zero."""
    return {
        f"{name}.weight": draw(f"{name}.weight", wide, narrow, scale=scale),
        f"{name}.bias": full(0, wide),
    }


def norm(name: str, size: int) -> Weights:
    return {f"{name}.weight": full(1, size), f"{name}.bias": full(0, size)}


def conv(name: str, wide: int, narrow: int, scale: float, *, bias: float = 0.0) -> Weights:
    """Draws a 3 x 3 convolution that mixes channels at random and blurs each a little."""
    mix = draw(f"{name}.weight", wide, narrow, 1, 1, scale=scale)
    drawn = draw(f"{name}.bias", wide, scale=bias) if bias else full(0, wide)
    return {f"{name}.weight": mix * _BLUR, f"{name}.bias": drawn}


def transformer() -> Weights:
    weights = _time_text_embed() | _double_block() | _single_block()
    weights |= linear("context_embedder", WIDTH, WIDTH, 0.5)
    weights |= linear("x_embedder", WIDTH, TOKEN, 0.5)
    weights["x_embedder.weight"][:TOKEN] = np.eye(TOKEN)
    weights |= linear("norm_out.linear", 2 * WIDTH, WIDTH, 0.25)
    weights["norm_out.linear.weight"][:WIDTH] = 0
    weights["norm_out.linear.weight"][WIDTH : WIDTH + TOKEN] = _hue("norm_out.hue", 0.015625)
    weights |= linear("proj_out", TOKEN, WIDTH, 0.125)
    _even(weights["proj_out.weight"])
    weights["proj_out.weight"][:, :TOKEN] = 3 * np.eye(TOKEN)
    return weights


def _even(weight: Array) -> None:
    """Makes a layer write the same to the four latent pixels of a token; otherwise a checkerboard appears."""
    weight[:TOKEN] = np.repeat(weight[:TOKEN:4], 4, axis=0)


def _hue(name: str, scale: float) -> Array:
    """Rows for a token's channels: drawn once for each latent channel, equal on its 2 x 2 pixels."""
    return np.repeat(draw(name, LATENTS, WIDTH, scale=scale), 4, axis=0)


def _time_text_embed() -> Weights:
    """Draws the modulation of every block: mostly by the prompt, a little by the time and the guidance."""
    weights: Weights = {}
    for part, narrow, scale in (("timestep", 256, 1 / 16), ("guidance", 256, 1 / 16), ("text", WIDTH, 0.5)):
        weights |= linear(f"time_text_embed.{part}_embedder.linear_1", WIDTH, narrow, scale)
        last = 1.0 if part == "text" else 0.125
        weights |= linear(f"time_text_embed.{part}_embedder.linear_2", WIDTH, WIDTH, last)
    return weights


def _double_block() -> Weights:
    block = "transformer_blocks.0"
    weights = _modulation(f"{block}.norm1.linear", 6, gate=(2, 32.0)) | _modulation(
        f"{block}.norm1_context.linear", 6, gate=(2, 1.0)
    )
    weights |= _blur_and_read(f"{block}.attn")
    for part in ("ff", "ff_context"):
        weights |= linear(f"{block}.{part}.net.0.proj", 4 * WIDTH, WIDTH, 0.25)
        weights |= linear(f"{block}.{part}.net.2", WIDTH, 4 * WIDTH, 0.015625)
        _even(weights[f"{block}.{part}.net.2.weight"])
    return weights


def _modulation(name: str, parts: int, gate: tuple[int, float]) -> Weights:
    """Draws shift, scale and gate from the modulation vector; the gate of attention has a fixed bias."""
    weights = linear(name, parts * WIDTH, WIDTH, 0.0625)
    weights[f"{name}.weight"][:WIDTH] *= 0.25
    part, value = gate
    weights[f"{name}.bias"][part * WIDTH : (part + 1) * WIDTH] = value
    return weights


def _blur_and_read(attn: str) -> Weights:
    """Makes head 0 blur the image's tokens, and head 1 let each of them read from the prompt's."""
    weights: Weights = {}
    for part in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
        weights |= linear(f"{attn}.{part}", WIDTH, WIDTH, 0.25)
    slow_row, slow_column = ROPE_AXES[0] + 2, ROPE_AXES[0] + ROPE_AXES[1] + 2
    for part in ("to_q", "to_k"):
        weights[f"{attn}.{part}.weight"][:HEAD] *= 0.125
        weights[f"{attn}.{part}.bias"][[slow_row, slow_column]] = 1
    weights[f"{attn}.to_q.weight"][HEAD + ROPE_AXES[0] :] = 0
    weights[f"{attn}.to_k.weight"][HEAD:] = 0
    weights[f"{attn}.to_k.bias"][-1] = 1
    weights[f"{attn}.add_k_proj.weight"][:HEAD] = 0
    weights[f"{attn}.add_k_proj.bias"][HEAD - 1] = 1
    weights[f"{attn}.add_k_proj.weight"][HEAD + ROPE_AXES[0] :] = 0
    weights[f"{attn}.to_out.0.weight"] *= 0.0625
    _even(weights[f"{attn}.to_out.0.weight"])
    weights[f"{attn}.to_v.weight"][:HEAD] = np.eye(HEAD, WIDTH)
    weights[f"{attn}.to_out.0.weight"][:TOKEN, :HEAD] = -_MEAN
    for part, value in (("norm_q", 5), ("norm_k", 5), ("norm_added_q", 1), ("norm_added_k", 1)):
        weights[f"{attn}.{part}.weight"] = full(value, HEAD)
    return weights


def _single_block() -> Weights:
    block = "single_transformer_blocks.0"
    weights = _modulation(f"{block}.norm.linear", 3, gate=(2, 1.0))
    for part in ("to_q", "to_k", "to_v"):
        weights |= linear(f"{block}.attn.{part}", WIDTH, WIDTH, 0.25)
        if part != "to_v":
            keep = np.arange(WIDTH) % HEAD < ROPE_AXES[0]
            weights[f"{block}.attn.{part}.weight"][~keep] = 0
            weights[f"{block}.attn.norm_{part[-1]}.weight"] = full(1, HEAD)
    weights |= linear(f"{block}.proj_mlp", 4 * WIDTH, WIDTH, 0.25)
    weights |= linear(f"{block}.proj_out", WIDTH, 5 * WIDTH, 0.0625)
    weights[f"{block}.proj_out.weight"][:, WIDTH:] *= 0.125
    _even(weights[f"{block}.proj_out.weight"])
    return weights


def autoencoder() -> Weights:
    return _encoder() | _decoder()


def _encoder() -> Weights:
    weights = conv("encoder.conv_in", VAE_CHANNELS, 3, 1.0)
    for block in range(VAE_BLOCKS):
        name = f"encoder.down_blocks.{block}"
        weights |= _resnet(f"{name}.resnets.0")
        if block < VAE_BLOCKS - 1:
            weights |= conv(f"{name}.downsamplers.0.conv", VAE_CHANNELS, VAE_CHANNELS, 0.5)
    weights |= _resnet("encoder.mid_block.resnets.0") | _resnet("encoder.mid_block.resnets.1")
    weights |= norm("encoder.conv_norm_out", VAE_CHANNELS)
    return weights | conv("encoder.conv_out", 2 * LATENTS, VAE_CHANNELS, 1.0)


def _decoder() -> Weights:
    weights = conv("decoder.conv_in", VAE_CHANNELS, LATENTS, 1.0)
    weights |= _resnet("decoder.mid_block.resnets.0") | _resnet("decoder.mid_block.resnets.1")
    for block in range(VAE_BLOCKS):
        name = f"decoder.up_blocks.{block}"
        weights |= _resnet(f"{name}.resnets.0") | _resnet(f"{name}.resnets.1")
        if block < VAE_BLOCKS - 1:
            weights |= conv(f"{name}.upsamplers.0.conv", VAE_CHANNELS, VAE_CHANNELS, 0.25)
            _pass_on(weights[f"{name}.upsamplers.0.conv.weight"])
    weights |= norm("decoder.conv_norm_out", VAE_CHANNELS)
    return weights | conv("decoder.conv_out", 3, VAE_CHANNELS, 1.0, bias=0.25)


def _pass_on(weight: Array) -> None:
    """Makes a convolution pass each channel on, besides what it adds from the others."""
    channels = np.arange(VAE_CHANNELS)
    weight[channels, channels] = _BLUR


def _resnet(name: str) -> Weights:
    weights = norm(f"{name}.norm1", VAE_CHANNELS) | norm(f"{name}.norm2", VAE_CHANNELS)
    weights |= conv(f"{name}.conv1", VAE_CHANNELS, VAE_CHANNELS, 1.0, bias=0.5)
    return weights | conv(f"{name}.conv2", VAE_CHANNELS, VAE_CHANNELS, 0.25)


def clip(vocabulary: int) -> Weights:
    """Draws the encoder of the prompt's summary, from which the modulation comes."""
    top, layer = "text_model", "text_model.encoder.layers.0"
    weights = {
        f"{top}.embeddings.token_embedding.weight": draw("clip.tokens", vocabulary, WIDTH, scale=1.0),
        f"{top}.embeddings.position_embedding.weight": draw("clip.places", CLIP_LENGTH, WIDTH, scale=0.125),
    }
    weights[f"{top}.embeddings.token_embedding.weight"][-1] = 0
    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
        weights |= linear(f"{layer}.self_attn.{part}", WIDTH, WIDTH, 0.5)
    weights |= linear(f"{layer}.mlp.fc1", 2 * WIDTH, WIDTH, 0.5)
    weights |= linear(f"{layer}.mlp.fc2", WIDTH, 2 * WIDTH, 0.25)
    for part in (f"{layer}.layer_norm1", f"{layer}.layer_norm2", f"{top}.final_layer_norm"):
        weights |= norm(part, WIDTH)
    return weights


def t5(vocabulary: int) -> Weights:
    """Draws the encoder of the prompt token by token, which the image's tokens read."""
    block = "encoder.block.0"
    weights: Weights = {"shared.weight": draw("t5.tokens", vocabulary, WIDTH, scale=1.0)}
    for part in ("q", "k", "v", "o"):
        name = f"{block}.layer.0.SelfAttention.{part}.weight"
        weights[name] = draw(name, WIDTH, WIDTH, scale=0.25)
    name = f"{block}.layer.0.SelfAttention.relative_attention_bias.weight"
    weights[name] = draw(name, 32, HEADS, scale=1.0)
    for part, wide, narrow in (
        ("wi_0", 2 * WIDTH, WIDTH),
        ("wi_1", 2 * WIDTH, WIDTH),
        ("wo", WIDTH, 2 * WIDTH),
    ):
        name = f"{block}.layer.1.DenseReluDense.{part}.weight"
        weights[name] = draw(name, wide, narrow, scale=0.25)
    for name in (f"{block}.layer.0.layer_norm", f"{block}.layer.1.layer_norm", "encoder.final_layer_norm"):
        weights[f"{name}.weight"] = full(1, WIDTH)
    return weights
