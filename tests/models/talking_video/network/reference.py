"""The network as its authors describe it, slowly: float64, numpy, one head at a time.

Sources: Wan (arXiv 2503.20314) for the transformer; MultiTalk (arXiv 2505.22647) and InfiniteTalk (arXiv
2508.14033) for what hears. Nothing of ours or of diffusers is used but the names of the weights. States are
(tokens, dim) of one sample; there is no batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = Mapping[str, Array]

TEXT_TOKENS = 512


# Small parts


def under(weights: Weights, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def linear(weights: Weights, name: str, x: Array) -> Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x: Array, eps: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)


def affine_norm(weights: Weights, name: str, x: Array, eps: float) -> Array:
    return layer_norm(x, eps) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """Over all channels, which is over all heads together."""
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * gain


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.where(x > 0, x, 0.0)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_by_tanh(x: Array) -> Array:
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def heads_of(x: Array, heads: int) -> list[Array]:
    return np.split(x, heads, axis=-1)


def attention(query: Array, key: Array, value: Array, heads: int) -> Array:
    """One head after the other."""
    out = []
    for q, k, v in zip(*(heads_of(x, heads) for x in (query, key, value)), strict=True):
        out.append(softmax(np.einsum("id,jd->ij", q, k) / math.sqrt(q.shape[-1])) @ v)
    return np.concatenate(out, axis=-1)


def turned(x: Array, angles: Array, heads: int) -> Array:
    """Each pair of neighbouring channels is a complex number, turned by its angle: x (tokens, dim), angles
    (tokens, half a head)."""
    out = []
    for head in heads_of(x, heads):
        numbers = (head[:, 0::2] + 1j * head[:, 1::2]) * np.exp(1j * angles)
        pairs = np.stack([numbers.real, numbers.imag], axis=-1)
        out.append(pairs.reshape(head.shape))
    return np.concatenate(out, axis=-1)


def angles_of(positions: Array, width: int) -> Array:
    """Rotary angles on a line: pair j of `width` channels turns by place / 10000^(2j / width)."""
    return np.array(
        [[position / 10_000 ** (2 * j / width) for j in range(width // 2)] for position in positions]
    )


def angles_of_video(grid: tuple[int, int, int], width: int) -> Array:
    """In three dimensions: of a head's pairs a third each for row and column, and the rest for time."""
    pairs = width // 2
    side = pairs // 3
    tokens = [(t, y, x) for t in range(grid[0]) for y in range(grid[1]) for x in range(grid[2])]
    by_axis = [
        angles_of(np.array([token[axis] for token in tokens], float), 2 * count)
        for axis, count in enumerate((pairs - 2 * side, side, side))
    ]
    return np.concatenate(by_axis, axis=1)


# Audio


def windows(features: Array, first: int, frames: int, size: int) -> Array:
    """(frames, size, layers, width). After its end the audio is played backwards, and forwards again."""
    played: list[Array] = []
    while len(played) < first + frames + size:
        played += [*features, *features[::-1]]
    rows = []
    for frame in range(first, first + frames):
        positions = [frame + offset for offset in range(-(size // 2), size // 2 + 1)]
        rows.append([played[max(position, 0)] for position in positions])
    return np.array(rows)


def rows_of_latents(windows: Array) -> list[Array]:
    """The rows of each latent frame: the first frame's window; of four frames three leading rows of the
    first, the centre of the two in the middle, three trailing rows of the last."""
    half = windows.shape[1] // 2
    groups = [windows[0]]
    for start in range(1, len(windows), 4):
        a, b, c, d = windows[start : start + 4]
        groups.append(np.stack([*a[: half + 1], b[half], c[half], *d[half:]]))
    return groups


def projected(weights: Weights, windows: Array, width: int) -> Array:
    """(latent frames, tokens, width)."""
    out = []
    for number, rows in enumerate(rows_of_latents(windows)):
        first = "proj1_vf" if number else "proj1"
        hidden = relu(linear(weights, "proj2", relu(linear(weights, first, rows.reshape(-1)))))
        tokens = linear(weights, "proj3", hidden).reshape(-1, width)
        out.append(affine_norm(weights, "norm", tokens, 1e-5))
    return np.array(out)


def audio_attention(
    weights: Weights, x: Array, audio: Array, heads: int, positions: Array | None = None
) -> Array:
    """Audio cross-attention: the tokens of a latent frame attend to that frame's audio tokens."""
    dim, per_frame = x.shape[1], len(x) // len(audio)
    out = []
    for number, tokens in enumerate(audio):
        mine = slice(number * per_frame, (number + 1) * per_frame)
        query = linear(weights, "q_linear", x[mine])
        both = linear(weights, "kv_linear", tokens)
        key, value = both[:, :dim], both[:, dim:]
        if positions is not None:
            speakers = np.array([2.0] * (len(tokens) // 2) + [22.0] * (len(tokens) // 2))
            query = turned(query, angles_of(positions[mine], dim // heads), heads)
            key = turned(key, angles_of(speakers, dim // heads), heads)
        out.append(attention(query, key, value, heads))
    return linear(weights, "proj", np.concatenate(out))


def positions_by_attention(query: Array, key: Array, masks: Array, heads: int) -> Array:
    """Where each token stands between two speakers: by how much it attends to each mask's tokens of the
    reference frame, over the heads' mean and the mask's size."""
    shares = []
    for mask in masks:
        by_head = []
        for q, k in zip(heads_of(query, heads), heads_of(key, heads), strict=True):
            probabilities = softmax(q @ k.T / math.sqrt(q.shape[-1]))
            by_head.append(probabilities[:, mask > 0].sum(axis=1) / max((mask > 0).sum(), 1))
        shares.append(np.mean(by_head, axis=0))
    out = np.full(len(query), 12.0)
    for speaker, low in ((0, 0.0), (1, 20.0)):
        share = shares[speaker]
        spread = low + 4.0 * (share - share.min()) / (share.max() - share.min())
        wins = np.argmax(shares, axis=0) == speaker
        out[wins] = spread[wins]
    return out


# Wan's transformer


def self_attention(weights: Weights, x: Array, angles: Array, heads: int, eps: float) -> Array:
    query, key = queries_and_keys(weights, x, angles, heads, eps)
    return linear(weights, "to_out.0", attention(query, key, linear(weights, "to_v", x), heads))


def queries_and_keys(
    weights: Weights, x: Array, angles: Array, heads: int, eps: float
) -> tuple[Array, Array]:
    query = rms_norm(linear(weights, "to_q", x), weights["norm_q.weight"], eps)
    key = rms_norm(linear(weights, "to_k", x), weights["norm_k.weight"], eps)
    return turned(query, angles, heads), turned(key, angles, heads)


def cross_attention(weights: Weights, x: Array, text: Array, image: Array, heads: int, eps: float) -> Array:
    """To the text and to the image, each by itself, summed before the last layer."""
    query = rms_norm(linear(weights, "to_q", x), weights["norm_q.weight"], eps)
    text_key = rms_norm(linear(weights, "to_k", text), weights["norm_k.weight"], eps)
    image_key = rms_norm(linear(weights, "add_k_proj", image), weights["norm_added_k.weight"], eps)
    by_text = attention(query, text_key, linear(weights, "to_v", text), heads)
    by_image = attention(query, image_key, linear(weights, "add_v_proj", image), heads)
    return linear(weights, "to_out.0", by_text + by_image)


def feed_forward(weights: Weights, x: Array) -> Array:
    return linear(weights, "net.2", gelu_by_tanh(linear(weights, "net.0.proj", x)))


@dataclass(frozen=True)
class Context:
    """The inputs of a block: text (512, dim) and image (n, dim) embedded, time (6, dim), audio (latent
    frames, tokens, width); `masks` (3, reference tokens) with two speakers."""

    text: Array
    image: Array
    time: Array
    audio: Array
    masks: Array | None = None


def block(
    weights: Weights, x: Array, context: Context, angles: Array, heads: int, eps: float = 1e-6
) -> Array:
    shift, scale, gate, ff_shift, ff_scale, ff_gate = weights["scale_shift_table"][0] + context.time
    modulated = layer_norm(x, eps) * (1 + scale) + shift
    own = under(weights, "attn1.")
    positions = None
    if context.masks is not None:
        query, key = queries_and_keys(own, modulated, angles, heads, eps)
        positions = positions_by_attention(query, key[: context.masks.shape[1]], context.masks, heads)
    x = x + gate * self_attention(own, modulated, angles, heads, eps)
    normed = affine_norm(weights, "norm2", x, eps)
    x = x + cross_attention(under(weights, "attn2."), normed, context.text, context.image, heads, eps)
    normed = affine_norm(weights, "norm_x", x, 1e-6)
    x = x + audio_attention(under(weights, "audio_cross_attn."), normed, context.audio, heads, positions)
    return x + ff_gate * feed_forward(under(weights, "ffn."), layer_norm(x, eps) * (1 + ff_scale) + ff_shift)


def sinusoid(time: float, width: int) -> Array:
    angles = [time / 10_000 ** (j / (width // 2)) for j in range(width // 2)]
    return np.array([math.cos(a) for a in angles] + [math.sin(a) for a in angles])


def network(
    weights: Weights,
    config: Mapping[str, Any],
    latents: Array,
    time: float,
    text: Array,
    image: Array,
    audio: Array,
    masks: Array | None = None,
) -> Array:
    """The velocity of one sample: latents (channels, T, H, W), text (512, text_dim), image (n, image_dim),
    audio (T, tokens, audio_dim)."""
    heads, width = config["num_attention_heads"], config["attention_head_dim"]
    embed = under(weights, "condition_embedder.")
    state = sinusoid(time, config["freq_dim"])
    state = linear(embed, "time_embedder.linear_2", silu(linear(embed, "time_embedder.linear_1", state)))
    steering = linear(embed, "time_proj", silu(state)).reshape(6, -1)
    embedded_text = gelu_by_tanh(linear(embed, "text_embedder.linear_1", text))
    embedded_text = linear(embed, "text_embedder.linear_2", embedded_text)
    context = Context(embedded_text, embedded_image(embed, image), steering, audio, masks)

    x, grid = patches(weights, latents, config["patch_size"])
    angles = angles_of_video(grid, width)
    for number in range(config["num_layers"]):
        x = block(under(weights, f"blocks.{number}."), x, context, angles, heads, config["eps"])
    shift, scale = weights["scale_shift_table"][0] + state
    out = linear(weights, "proj_out", layer_norm(x, config["eps"]) * (1 + scale) + shift)
    return laid_out(out, grid, config["patch_size"])


def embedded_image(embed: Weights, image: Array) -> Array:
    part = under(embed, "image_embedder.")
    hidden = gelu(linear(part, "ff.net.0.proj", affine_norm(part, "norm1", image, 1e-5)))
    return affine_norm(part, "norm2", linear(part, "ff.net.2", hidden), 1e-5)


def patches(weights: Weights, latents: Array, patch: Sequence[int]) -> tuple[Array, tuple[int, int, int]]:
    kernel, bias = weights["patch_embedding.weight"], weights["patch_embedding.bias"]
    grid = tuple(side // part for side, part in zip(latents.shape[1:], patch, strict=True))
    tokens = []
    for corner in np.ndindex(*grid):
        cut = [slice(at * part, (at + 1) * part) for at, part in zip(corner, patch, strict=True)]
        tokens.append(np.einsum("ocijk,cijk->o", kernel, latents[:, cut[0], cut[1], cut[2]]) + bias)
    return np.array(tokens), (grid[0], grid[1], grid[2])


def laid_out(tokens: Array, grid: tuple[int, int, int], patch: Sequence[int]) -> Array:
    """A token holds its patch, the channel running fastest."""
    channels = tokens.shape[1] // math.prod(patch)
    out = np.zeros((channels, *(side * part for side, part in zip(grid, patch, strict=True))))
    for token, (t, y, x) in zip(tokens, np.ndindex(*grid), strict=True):
        token_patches = token.reshape(*patch, channels)
        for a, b, c in np.ndindex(*patch):
            out[:, t * patch[0] + a, y * patch[1] + b, x * patch[2] + c] = token_patches[a, b, c]
    return out


# The sampler


def levels(steps: int, shift: float) -> list[float]:
    times = [*np.linspace(1000, 1, steps), 0.0]
    return [shift * (t / 1000) / (1 + (shift - 1) * (t / 1000)) for t in times]


def guided(velocity: Callable[[bool, bool], Any], text: float, audio: float) -> tuple[Any, int]:
    """`velocity(has_text, has_audio)`; the guided one and how many forwards it took."""
    both = velocity(True, True)
    if text == 1 and audio == 1:
        return both, 1
    if text == 1:
        no_audio = velocity(True, False)
        return no_audio + audio * (both - no_audio), 2
    no_text, neither = velocity(False, True), velocity(False, False)
    return neither + text * (both - no_text) + audio * (no_text - neither), 3
