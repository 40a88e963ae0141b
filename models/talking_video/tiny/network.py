"""The network of `talk-tiny` and the speech encoder that it hears by, their numbers set by hand: the given
picture, a little coarse, with a dark mouth in its lower middle that opens as the voice gets louder.

    ear       loudness, of low sounds and of high ones
    network   block 0 finds each token's place between the marks at the borders, and hears;
              block 1 looks up the picture's latents at the token's place, and draws the mouth
              where `loudness - distance from the mouth` is positive

What a latent holds is for `tiny_autoencoder` to say, and so are the tricks; `gelu` serves as `silu` does.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stoker.models.made_weights import Array, draw
from stoker.models.talking_video.tiny_autoencoder import (
    ALTERNATE,
    LARGE,
    LATENTS,
    MARKS,
    QUARTERS,
    SHARP,
    Weights,
)

__all__ = ["BLOCKS", "HEAD", "HEADS", "SALT", "WIDTH", "ear", "network"]

BANDS: Final = 8
EAR: Final = 16
"""Widths of the ear: its convolutions, and its layers."""

LOW, HIGH, SILENT, UP, DOWN = 0, 1, 2, 14, 15
"""Of the ear's layers and of the audio tokens: loudness of low and of high sounds, a channel that is zero,
and two constants, against which a norm measures the others."""

UNHEARD: Final = slice(3, 13)
"""Of the audio tokens: drawn sums of all that the ear gives, of which a little is seen everywhere."""

STANDS: Final = 8
"""The pair of a head's channels that turns by a tenth from place to place."""

SALT: Final = "stoker talk-tiny 2"

CONSTANT: Final = 8.0
LOUDNESS_KEPT: Final = CONSTANT * np.sqrt(2 / EAR)
"""What a norm over UP and DOWN divides by."""


def ear(weights: Weights) -> None:
    """The first convolution is normed over time, channel by channel, and so cannot tell loud from silent
    bands: it passes the wave on, as it is and turned over. The second one parts low from high; its outputs
    are made positive, and their means taken until 50 a second are left."""
    first = "feature_extractor.conv_layers.0"
    for channel, sign in ((0, 1.0), (1, -1.0)):
        weights[f"{first}.conv.weight"][channel, 0] = sign / 10
    weights[f"{first}.layer_norm.weight"][2:] = 0
    weights[f"{first}.layer_norm.bias"][7] = LARGE
    for number, taps in enumerate(((1.0, 1.0, 1.0), (1.0, -2.0, 1.0))):
        for sign in range(2):
            for of, way in ((0, 1.0), (1, -1.0)):
                row = weights["feature_extractor.conv_layers.1.conv.weight"][2 * number + sign, of]
                row[:] = np.array(taps) * way * (1.0 - 2.0 * sign) * 2
    for layer in range(1, 7):
        weight = weights[f"feature_extractor.conv_layers.{layer}.conv.weight"]
        weight[7, 7] = 1 / weight.shape[2]
        for band in range(2 if layer > 1 else 0):
            for of in (2 * band, 2 * band + 1) if layer == 2 else (band,):
                weight[band, of] = 1 / weight.shape[2]
    # Its length is zero; a direction it must have.
    weights["encoder.pos_conv_embed.conv.parametrizations.weight.original1"][:] = 1.0
    length = LARGE * np.sqrt(BANDS - 1) / BANDS
    projection = weights["feature_projection.projection.weight"]
    for band in (LOW, HIGH):
        projection[band, band], projection[band, 6] = length / 4, -length / 4
    bias = weights["feature_projection.projection.bias"]
    bias[UP], bias[DOWN] = CONSTANT, -CONSTANT


WIDTH: Final = 128
HEADS: Final = 4
HEAD: Final = WIDTH // HEADS
BLOCKS: Final = 2

COLOURS: Final = 12
"""Latents that show something: MEAN and DETAIL."""

STILL, EDGES, KNOWN, PLUS, MINUS, NOTHING = 56, 104, 108, 109, 110, 111
DOWNWARDS, RIGHTWARDS, LOUD, FROM_COLUMN, FROM_ROW = 112, 113, 114, 116, 120
"""A token's channels. First its own latents, each at the four places of the patch; then the picture's where
this is the first frame, marks of the borders, whether it is the first frame, two constants and a zero; its
place; what it hears; and how far four columns and four rows of it are from the mouth."""

HUGE: Final = 256.0
KEPT: Final = HUGE * np.sqrt(2 / WIDTH)
"""What the network's norms divide by."""

SLOWEST, ROWS, COLUMNS = 10, 12, 22
"""Of a head's channels: the pair that rotates least, with time; those that rotate with row and column."""

SURE: Final = 20 * np.sqrt(HEAD)
STEP: Final = 0.2
"""What DOWNWARDS and RIGHTWARDS grow by from token to token about the middle of ten."""

MOUTH: Final = (1.3, 0.0)
"""Tokens below and right of the middle."""

OPENINGS: Final = ((1.1, 1.1), (2.2, 0.65))
"""How fast the mouth closes downwards and sidewards: with low sounds it is round, with high ones wide."""

INK: Final = (0.9, 1.3, 1.2)
"""What the mouth takes from red, green and blue."""


def network(weights: Weights) -> None:
    _listen(weights)
    _embed(weights)
    for block in range(BLOCKS):
        name = f"blocks.{block}"
        weights[f"{name}.scale_shift_table"][0, [2, 5]] = 1.0
        for part in ("to_q", "to_k"):
            weights[f"{name}.attn1.{part}.bias"][:] = 1.0
        weights[f"{name}.attn1.norm_q.weight"][:] = 0.0
        weights[f"{name}.attn1.norm_k.weight"][1::2] = 0.0  # of each pair that rotates, the first
    _find_place(weights, "blocks.0.attn1")
    _hear(weights, "blocks.0.audio_cross_attn")
    _measure(weights, "blocks.0.ffn")
    _look_up(weights, "blocks.1.attn1")
    _open_mouth(weights, "blocks.1.ffn")
    _give_velocity(weights)
    for block in range(BLOCKS):
        weights[f"blocks.{block}.attn2.to_out.0.weight"] *= 1 / 64


def _listen(weights: Weights) -> None:
    """Each latent frame's windows to its loudness, in every token the same."""
    for name in ("proj1", "proj1_vf"):
        weight = weights[f"audio_proj.{name}.weight"]
        rows = weight.reshape(len(weight), -1, EAR)
        for band in (LOW, HIGH):
            rows[band, :, band] = LOUDNESS_KEPT / rows.shape[1]
            rows[band, :, SILENT] = -LOUDNESS_KEPT / rows.shape[1]
    for band in (LOW, HIGH):
        weights["audio_proj.proj2.weight"][band, band] = 1.0
    tokens = weights["audio_proj.proj3.weight"].reshape(-1, EAR, EAR)
    bias = weights["audio_proj.proj3.bias"].reshape(-1, EAR)
    for band in (LOW, HIGH):
        tokens[:, band, band] = 1.0
    bias[:, UP], bias[:, DOWN] = CONSTANT, -CONSTANT
    for name in ("proj1", "proj1_vf"):
        rest = weights[f"audio_proj.{name}.weight"][UNHEARD]
        rest[...] = draw(f"{SALT}/{name}", *rest.shape, scale=0.25)
    for part in (weights["audio_proj.proj2.weight"][UNHEARD, UNHEARD], tokens[:, UNHEARD, UNHEARD]):
        part[...] = np.eye(EAR)[UNHEARD, UNHEARD]


def _embed(weights: Weights) -> None:
    weight = weights["patch_embedding.weight"]
    mask, still = LATENTS, LATENTS + 4
    for place, (row, column) in enumerate(QUARTERS):
        for latent in range(ALTERNATE.stop):
            weight[4 * latent + place, latent, 0, row, column] = 1.0
        for latent in range(COLOURS):
            weight[STILL + 4 * latent + place, still + latent, 0, row, column] = 1.0
        for mark in range(4):
            weight[EDGES + mark, still + MARKS.start + mark, 0, row, column] = 0.5
        weight[KNOWN, mask, 0, row, column] = 0.25
    bias = weights["patch_embedding.bias"]
    bias[PLUS], bias[MINUS] = HUGE, -HUGE


def _read(row: Array, channel: int, factor: float) -> None:
    """A layer after a norm reads what a channel held before it."""
    row[channel] += factor * KEPT
    row[NOTHING] -= factor * KEPT


def _find_place(weights: Weights, name: str) -> None:
    """Head 0 attends to the top and bottom borders, to the nearer one more; head 1 to left and right."""
    for head, (first, moves, slot) in enumerate(((0, ROWS, DOWNWARDS), (2, COLUMNS, RIGHTWARDS))):
        start = HEAD * head
        weights[f"{name}.norm_q.weight"][start + SLOWEST] = SURE
        weights[f"{name}.norm_q.weight"][start + moves + 4] = 70 * np.sqrt(HEAD)
        key = weights[f"{name}.to_k.weight"][start + SLOWEST]
        for mark, way in ((first, -1.0), (first + 1, 1.0)):
            _read(key, EDGES + mark, 2.0)
            _read(weights[f"{name}.to_v.weight"][start], EDGES + mark, way)
        weights[f"{name}.to_k.bias"][start + SLOWEST] = -1.0
        weights[f"{name}.to_out.0.weight"][slot, start] = 1.0


def _hear(weights: Weights, name: str) -> None:
    value = weights[f"{name}.kv_linear.weight"][WIDTH:]
    for band in (LOW, HIGH):
        value[band, band], value[band, SILENT] = LOUDNESS_KEPT, -LOUDNESS_KEPT
        weights[f"{name}.proj.weight"][LOUD + band, band] = 1.0
    for number in range(UNHEARD.start, UNHEARD.stop):
        value[number, number] = 1.0
    rest = weights[f"{name}.proj.weight"][: 4 * COLOURS, UNHEARD]
    rest[...] = draw(f"{SALT}/{name}", *rest.shape, scale=1 / 64)
    # Of two voices a token hears the one that stands where it does.
    for part, size in (("q_linear", 10 * np.sqrt(HEAD)), ("kv_linear", 1.0)):
        weights[f"{name}.{part}.bias"][STANDS:WIDTH:HEAD] = size


def _measure(weights: Weights, name: str) -> None:
    """How far each quarter of a quarter of the token is from the mouth, down and sideways."""
    into, out = weights[f"{name}.net.0.proj.weight"], weights[f"{name}.net.2.weight"]
    unit = 0
    for slot, to, middle in ((DOWNWARDS, FROM_ROW, MOUTH[0]), (RIGHTWARDS, FROM_COLUMN, MOUTH[1])):
        for part in range(4):
            for sign in (1.0, -1.0):
                _read(into[unit], slot, sign * SHARP / STEP)
                beside = (part - 1.5) / 4 - middle
                weights[f"{name}.net.0.proj.bias"][unit] = sign * SHARP * beside
                out[to + part, unit] = 1.0 / SHARP
                unit += 1


def _look_up(weights: Weights, name: str) -> None:
    """Every head finds the token of the first frame at the same place; what it holds of the picture is taken
    from the token's own latents."""
    for head in range(HEADS):
        start = HEAD * head
        for moves in (ROWS, COLUMNS):
            weights[f"{name}.norm_q.weight"][[start + moves, start + moves + 2, start + moves + 4]] = (
                24 * np.sqrt(HEAD)
            )
        weights[f"{name}.norm_q.weight"][start + SLOWEST] = SURE
        _read(weights[f"{name}.to_k.weight"][start + SLOWEST], KNOWN, 2.0)
        weights[f"{name}.to_k.bias"][start + SLOWEST] = -1.0
    for number in range(4 * COLOURS):
        _read(weights[f"{name}.to_v.weight"][number], STILL + number, 1.0)
        weights[f"{name}.to_out.0.weight"][number, number] = -1.0


def _open_mouth(weights: Weights, name: str) -> None:
    """A unit for each quarter of a quarter of the token, and each opening."""
    into, out = weights[f"{name}.net.0.proj.weight"], weights[f"{name}.net.2.weight"]
    unit = 0
    for band, (down, aside) in enumerate(OPENINGS):
        for row in range(4):
            for column in range(4):
                _read(into[unit], LOUD + band, SHARP)
                _read(into[unit], FROM_ROW + row, -SHARP * down)
                _read(into[unit], FROM_COLUMN + column, -SHARP * aside)
                _paint(out[:, unit], row, column)
                unit += 1


def _paint(out: Array, row: int, column: int) -> None:
    place = 2 * (row // 2) + column // 2
    here = QUARTERS.index((row % 2, column % 2))
    for colour, ink in enumerate(INK):
        out[4 * colour + place] = ink / 4 / SHARP
        for detail in range(3):
            share = float(detail == here) - 0.25
            out[4 * (3 + 3 * detail + colour) + place] = ink * share / SHARP


def _give_velocity(weights: Weights) -> None:
    """What is left in a token's own channels: noisy latents without the clean ones."""
    weight, bias = weights["proj_out.weight"], weights["proj_out.bias"]
    for place, (row, column) in enumerate(QUARTERS):
        for latent in range(ALTERNATE.stop):
            _read(weight[LATENTS * place + latent], 4 * latent + place, 1.0)
        bias[LATENTS * place + ALTERNATE.start] = 2.0 * column - 1.0
        bias[LATENTS * place + ALTERNATE.start + 1] = 2.0 * row - 1.0
