"""The network and the speech encoder of `talk-tiny`, with weights set by hand. Its videos show the image, a
little coarse, with a dark mouth in its lower middle that opens as the audio gets louder.

    speech_encoder   the loudness of low sounds and of high ones
    network          block 0 finds each token's position between the marks at the borders, and reads
                     the loudness; block 1 looks up the image's latents at that position, and draws the mouth
                     where `loudness - distance from the mouth` is positive

The meaning of the latents and the techniques are described in `autoencoder`; `gelu` is used like `silu`
there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stoker.models.made_weights import Array, draw
from stoker.models.talking_video.tiny.autoencoder import (
    ALTERNATE,
    LARGE,
    LATENTS,
    MARKS,
    QUARTERS,
    SHARP,
    Weights,
)

BANDS: Final = 8
SPEECH: Final = 16
"""Widths of the speech encoder: of its convolutions, and of its layers."""

LOW, HIGH, SILENT, UP, DOWN = 0, 1, 2, 14, 15
"""Channels of the speech encoder's layers and of the audio tokens: the loudness of low and of high sounds, a
zero, and two constants, against which a norm measures the others."""

MIXED: Final = slice(3, 13)
"""Channels of the audio tokens: random sums of all outputs of the speech encoder, which change the whole
image a little."""

SPEAKER: Final = 8
"""The pair of a head's channels that the rotation by a speaker's position turns by a tenth for each unit."""

SALT: Final = "stoker talk-tiny 2"

CONSTANT: Final = 8.0
LOUDNESS_NORM: Final = CONSTANT * np.sqrt(2 / SPEECH)
"""The divisor of a norm over UP and DOWN."""


def speech_encoder(weights: Weights) -> None:
    """Sets the speech encoder by hand. The first convolution is normalized over time in each channel, so its
    output cannot show loudness: it passes on the wave and its negative. The second convolution separates low
    from high sounds. The others average the rectified outputs down to 50 a second."""
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
    # The length of this weight is zero, but its direction must not be zero.
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
"""The latents of colour: MEAN and DETAIL."""

STILL, EDGES, FIRST, PLUS, MINUS, NOTHING = 56, 104, 108, 109, 110, 111
DOWNWARDS, RIGHTWARDS, LOUD, FROM_COLUMN, FROM_ROW = 112, 113, 114, 116, 120
"""A token's channels: its own latents, each at the four positions of the patch; the image's latents, in the
first frame only; marks of the borders; whether it is in the first frame; two constants and a zero; its
position; the loudness; and the distances of its four columns and four rows from the mouth."""

HUGE: Final = 256.0
NORM: Final = HUGE * np.sqrt(2 / WIDTH)
"""The divisor of the network's norms."""

SLOWEST, ROWS, COLUMNS = 10, 12, 22
"""A head's channels: the pair that rotates least with time, and those that rotate with row and column."""

SHARPNESS: Final = 20 * np.sqrt(HEAD)
STEP: Final = 0.2
"""By how much DOWNWARDS and RIGHTWARDS grow from token to token in the middle of ten."""

MOUTH: Final = (1.3, 0.0)
"""The mouth's position: tokens below and right of the middle."""

OPENINGS: Final = ((1.1, 1.1), (2.2, 0.65))
"""How fast the mouth closes vertically and horizontally: low sounds make it round, high ones wide."""

INK: Final = (0.9, 1.3, 1.2)
"""How much darker the mouth is in red, green and blue."""


def network(weights: Weights) -> None:
    _project_audio(weights)
    _embed(weights)
    for block in range(BLOCKS):
        name = f"blocks.{block}"
        weights[f"{name}.scale_shift_table"][0, [2, 5]] = 1.0
        for part in ("to_q", "to_k"):
            weights[f"{name}.attn1.{part}.bias"][:] = 1.0
        weights[f"{name}.attn1.norm_q.weight"][:] = 0.0
        weights[f"{name}.attn1.norm_k.weight"][1::2] = 0.0  # keeps the first of each pair that rotates
    _find_position(weights, "blocks.0.attn1")
    _read_loudness(weights, "blocks.0.audio_cross_attn")
    _measure(weights, "blocks.0.ffn")
    _look_up(weights, "blocks.1.attn1")
    _open_mouth(weights, "blocks.1.ffn")
    _write_velocity(weights)
    for block in range(BLOCKS):
        weights[f"blocks.{block}.attn2.to_out.0.weight"] *= 1 / 64


def _project_audio(weights: Weights) -> None:
    """Turns the windows of each latent frame into its loudness, the same in every audio token."""
    for name in ("proj1", "proj1_vf"):
        weight = weights[f"audio_proj.{name}.weight"]
        rows = weight.reshape(len(weight), -1, SPEECH)
        for band in (LOW, HIGH):
            rows[band, :, band] = LOUDNESS_NORM / rows.shape[1]
            rows[band, :, SILENT] = -LOUDNESS_NORM / rows.shape[1]
    for band in (LOW, HIGH):
        weights["audio_proj.proj2.weight"][band, band] = 1.0
    tokens = weights["audio_proj.proj3.weight"].reshape(-1, SPEECH, SPEECH)
    bias = weights["audio_proj.proj3.bias"].reshape(-1, SPEECH)
    for band in (LOW, HIGH):
        tokens[:, band, band] = 1.0
    bias[:, UP], bias[:, DOWN] = CONSTANT, -CONSTANT
    for name in ("proj1", "proj1_vf"):
        rest = weights[f"audio_proj.{name}.weight"][MIXED]
        rest[...] = draw(f"{SALT}/{name}", *rest.shape, scale=0.25)
    for part in (weights["audio_proj.proj2.weight"][MIXED, MIXED], tokens[:, MIXED, MIXED]):
        part[...] = np.eye(SPEECH)[MIXED, MIXED]


def _embed(weights: Weights) -> None:
    weight = weights["patch_embedding.weight"]
    mask, still = LATENTS, LATENTS + 4
    for position, (row, column) in enumerate(QUARTERS):
        for latent in range(ALTERNATE.stop):
            weight[4 * latent + position, latent, 0, row, column] = 1.0
        for latent in range(COLOURS):
            weight[STILL + 4 * latent + position, still + latent, 0, row, column] = 1.0
        for mark in range(4):
            weight[EDGES + mark, still + MARKS.start + mark, 0, row, column] = 0.5
        weight[FIRST, mask, 0, row, column] = 0.25
    bias = weights["patch_embedding.bias"]
    bias[PLUS], bias[MINUS] = HUGE, -HUGE


def _read(row: Array, channel: int, factor: float) -> None:
    """Makes a layer after a norm read the value that a channel had before the norm."""
    row[channel] += factor * NORM
    row[NOTHING] -= factor * NORM


def _find_position(weights: Weights, name: str) -> None:
    """Makes head 0 attend to the top and bottom borders, more to the nearer border; head 1 to the left and
    right borders."""
    for head, (first, moves, slot) in enumerate(((0, ROWS, DOWNWARDS), (2, COLUMNS, RIGHTWARDS))):
        start = HEAD * head
        weights[f"{name}.norm_q.weight"][start + SLOWEST] = SHARPNESS
        weights[f"{name}.norm_q.weight"][start + moves + 4] = 70 * np.sqrt(HEAD)
        key = weights[f"{name}.to_k.weight"][start + SLOWEST]
        for mark, way in ((first, -1.0), (first + 1, 1.0)):
            _read(key, EDGES + mark, 2.0)
            _read(weights[f"{name}.to_v.weight"][start], EDGES + mark, way)
        weights[f"{name}.to_k.bias"][start + SLOWEST] = -1.0
        weights[f"{name}.to_out.0.weight"][slot, start] = 1.0


def _read_loudness(weights: Weights, name: str) -> None:
    value = weights[f"{name}.kv_linear.weight"][WIDTH:]
    for band in (LOW, HIGH):
        value[band, band], value[band, SILENT] = LOUDNESS_NORM, -LOUDNESS_NORM
        weights[f"{name}.proj.weight"][LOUD + band, band] = 1.0
    for number in range(MIXED.start, MIXED.stop):
        value[number, number] = 1.0
    rest = weights[f"{name}.proj.weight"][: 4 * COLOURS, MIXED]
    rest[...] = draw(f"{SALT}/{name}", *rest.shape, scale=1 / 64)
    # With two speakers a token attends to the audio at its own position.
    for part, size in (("q_linear", 10 * np.sqrt(HEAD)), ("kv_linear", 1.0)):
        weights[f"{name}.{part}.bias"][SPEAKER:WIDTH:HEAD] = size


def _measure(weights: Weights, name: str) -> None:
    """Computes the distances of a token's four rows and four columns from the mouth."""
    into, out = weights[f"{name}.net.0.proj.weight"], weights[f"{name}.net.2.weight"]
    unit = 0
    for slot, to, middle in ((DOWNWARDS, FROM_ROW, MOUTH[0]), (RIGHTWARDS, FROM_COLUMN, MOUTH[1])):
        for part in range(4):
            for sign in (1.0, -1.0):
                _read(into[unit], slot, sign * SHARP / STEP)
                offset = (part - 1.5) / 4 - middle
                weights[f"{name}.net.0.proj.bias"][unit] = sign * SHARP * offset
                out[to + part, unit] = 1.0 / SHARP
                unit += 1


def _look_up(weights: Weights, name: str) -> None:
    """Makes every head find the token of the first frame at the same position, and subtract its image latents
    from the token's own latents."""
    for head in range(HEADS):
        start = HEAD * head
        for moves in (ROWS, COLUMNS):
            weights[f"{name}.norm_q.weight"][[start + moves, start + moves + 2, start + moves + 4]] = (
                24 * np.sqrt(HEAD)
            )
        weights[f"{name}.norm_q.weight"][start + SLOWEST] = SHARPNESS
        _read(weights[f"{name}.to_k.weight"][start + SLOWEST], FIRST, 2.0)
        weights[f"{name}.to_k.bias"][start + SLOWEST] = -1.0
    for number in range(4 * COLOURS):
        _read(weights[f"{name}.to_v.weight"][number], STILL + number, 1.0)
        weights[f"{name}.to_out.0.weight"][number, number] = -1.0


def _open_mouth(weights: Weights, name: str) -> None:
    """Draws the mouth, with a unit for each of the sixteen parts of a token and each shape of the mouth."""
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
    position = 2 * (row // 2) + column // 2
    quarter = QUARTERS.index((row % 2, column % 2))
    for colour, ink in enumerate(INK):
        out[4 * colour + position] = ink / 4 / SHARP
        for detail in range(3):
            share = float(detail == quarter) - 0.25
            out[4 * (3 + 3 * detail + colour) + position] = ink * share / SHARP


def _write_velocity(weights: Weights) -> None:
    """Makes the velocity what remains in a token's own channels: the noisy latents minus the clean ones."""
    weight, bias = weights["proj_out.weight"], weights["proj_out.bias"]
    for position, (row, column) in enumerate(QUARTERS):
        for latent in range(ALTERNATE.stop):
            _read(weight[LATENTS * position + latent], 4 * latent + position, 1.0)
        bias[LATENTS * position + ALTERNATE.start] = 2.0 * column - 1.0
        bias[LATENTS * position + ALTERNATE.start + 1] = 2.0 * row - 1.0
