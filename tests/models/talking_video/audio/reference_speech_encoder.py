"""The speech encoder as its authors describe it, slowly: float64, numpy, of one wave.

Sources: wav2vec 2.0 (arXiv 2006.11477), the BASE model; that its sounds are brought to 25 a second before
the transformer, and that every layer of it is heard: MultiTalk (arXiv 2505.22647). Nothing of ours or of
transformers is used but the names of the weights. States are (channels, places) before the transformer, and
(places, channels) in it.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.models.talking_video.network.reference import (
    Array,
    Weights,
    affine_norm,
    attention,
    gelu,
    linear,
    under,
)

STRIDES = (5, 2, 2, 2, 2, 2, 2)
EPS = 1e-5


def convolved(kernel: Array, x: Array, stride: int = 1) -> Array:
    windows = sliding_window_view(x, kernel.shape[2], axis=1)[:, ::stride]
    out: Array = np.einsum("itk,oik->ot", windows, kernel)
    return out


def first_sounds(weights: Weights, wave: Array) -> Array:
    """Each channel is normed over the whole wave."""
    part = under(weights, "feature_extractor.conv_layers.0.")
    found = convolved(part["conv.weight"], wave[np.newaxis], STRIDES[0])
    centred = found - found.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPS)
    gain, bias = part["layer_norm.weight"], part["layer_norm.bias"]
    return gelu(normed * gain[:, np.newaxis] + bias[:, np.newaxis])


def sounds(weights: Weights, wave: Array) -> Array:
    """50 a second."""
    x = first_sounds(weights, wave)
    for number, stride in enumerate(STRIDES[1:], start=1):
        x = gelu(convolved(weights[f"feature_extractor.conv_layers.{number}.conv.weight"], x, stride))
    return x


def at_rate(x: Array, frames: int) -> Array:
    """Drawn out or squeezed to so many places; the first and the last stay where they are."""
    positions = np.linspace(0, x.shape[1] - 1, frames)
    return np.stack([np.interp(positions, np.arange(x.shape[1]), channel) for channel in x])


def with_positions(weights: Weights, x: Array) -> Array:
    """What a convolution in groups tells of the neighbours is added; its kernel is a length and directions,
    tap by tap."""
    part = under(weights, "encoder.pos_conv_embed.conv.")
    directions = part["parametrizations.weight.original1"]
    length = np.sqrt((directions**2).sum(axis=(0, 1), keepdims=True))
    kernel = part["parametrizations.weight.original0"] * directions / length
    taps, groups = kernel.shape[2], x.shape[1] // kernel.shape[1]
    padded = np.pad(x.T, ((0, 0), (taps // 2, taps // 2 - 1)))
    found = [
        convolved(some, of)
        for some, of in zip(np.split(kernel, groups), np.split(padded, groups), strict=True)
    ]
    return x + gelu(np.concatenate(found) + part["bias"][:, np.newaxis]).T


def layer(weights: Weights, x: Array, heads: int) -> Array:
    query, key, value = (linear(weights, f"attention.{name}_proj", x) for name in "qkv")
    x = x + linear(weights, "attention.out_proj", attention(query, key, value, heads))
    x = affine_norm(weights, "layer_norm", x, EPS)
    inside = gelu(linear(weights, "feed_forward.intermediate_dense", x))
    x = x + linear(weights, "feed_forward.output_dense", inside)
    return affine_norm(weights, "final_layer_norm", x, EPS)


def layers(weights: Weights, wave: Array, frames: int, count: int, heads: int) -> Array:
    """(frames, layers, width)."""
    x = at_rate(sounds(weights, wave), frames).T
    x = affine_norm(weights, "feature_projection.layer_norm", x, EPS)
    x = linear(weights, "feature_projection.projection", x)
    x = affine_norm(weights, "encoder.layer_norm", with_positions(weights, x), EPS)
    outputs = []
    for number in range(count):
        x = layer(under(weights, f"encoder.layers.{number}."), x, heads)
        outputs.append(x)
    return np.stack(outputs, axis=1)
