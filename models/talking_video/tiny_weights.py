"""The numbers of `talk-tiny` that are set by hand, so that its videos are worth looking at: the picture that
was given, a little coarse, with a dark mouth in its lower middle that opens as the voice gets louder.

    autoencoder   a latent is the mean colour of 8 x 8 pixels, what its four quarters differ by, and marks
                  at the borders of the picture; the decoder puts the quarters back where they were
    ear           loudness, of low sounds and of high ones
    network       block 0 finds each token's place between the marks at the borders, and hears;
                  block 1 looks up the picture's latents at the token's place, and draws the mouth
                  where `loudness - distance from the mouth` is positive

Tricks: norms divide by a length, so a large constant channel makes them all but linear. `silu` and `gelu` are
linear far to the right, and zero far to the left: pairs of channels pass numbers on, or choose between them.
A decoder of convolutions cannot tell left quarters from right ones; it can where latents alternate in sign,
which the network's bias writes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from stoker.models.made_weights import Array, draw

__all__ = [
    "BASE",
    "BLOCKS",
    "HEAD",
    "HEADS",
    "LATENTS",
    "MULTIPLES",
    "WIDTH",
    "autoencoder",
    "ear",
    "network",
]

Weights: TypeAlias = dict[str, Array]

LATENTS: Final = 18
BASE: Final = 4
MULTIPLES: Final = (1, 2, 8, 10)

LARGE: Final = 512.0
"""The constant channel of the autoencoder."""

LIFT: Final = 8.0
"""Numbers about zero are lifted by this where `silu` must pass them on."""

MEAN, DETAIL, ALTERNATE, MARKS = slice(0, 3), slice(3, 12), slice(12, 14), slice(14, 18)
"""Latents: colour, what three of the quarters differ from it, signs that alternate along rows and columns,
and marks at the top, bottom, left and right borders."""

QUARTERS: Final = ((0, 0), (0, 1), (1, 0), (1, 1))
NOW: Final = 2
"""The tap of a causal convolution that sees the present frame."""


def autoencoder(weights: Weights) -> None:
    for name in ("quant_conv", "post_quant_conv"):
        weight = weights[f"{name}.weight"]
        weight[:, :, 0, 0, 0] = np.eye(len(weight))
    _encoder(weights)
    _decoder(weights)


def _at(weight: Array, to: int, of: int, value: float, row: int = 1, column: int = 1) -> None:
    """Sets one tap of a convolution, in the present frame where it sees several."""
    if weight.ndim == 4:
        weight[to, of, row % weight.shape[2], column % weight.shape[3]] = value
    else:
        here = NOW % weight.shape[2], row % weight.shape[3], column % weight.shape[4]
        weight[(to, of, *here)] = value


def _norm(weights: Weights, name: str) -> None:
    gamma = weights[f"{name}.gamma"]
    gamma[...] = LARGE / np.sqrt(len(gamma))


def _pass(weights: Weights, name: str, channels: int, constant: int) -> None:
    """Hands on the first channels, and writes the constant one."""
    for channel in range(channels):
        _at(weights[f"{name}.weight"], channel, channel, 1.0)
    weights[f"{name}.bias"][constant] = LARGE


def _encoder(weights: Weights) -> None:
    _pass(weights, "encoder.conv_in", 3, 3)
    _shrink(weights, "encoder.down_blocks.1", 3)
    _pass(weights, "encoder.down_blocks.2.conv_shortcut", 3, 7)
    _mark_borders(weights, "encoder.down_blocks.2")
    _shrink(weights, "encoder.down_blocks.3", 7)
    _halve_time(weights, "encoder.down_blocks.3.time_conv", 7, 7)
    _pass(weights, "encoder.down_blocks.4.conv_shortcut", 7, 31)
    _split(weights, "encoder.down_blocks.5.resample.1")
    _halve_time(weights, "encoder.down_blocks.5.time_conv", 16, 31)
    _pass(weights, "encoder.down_blocks.6.conv_shortcut", 16, 39)
    weights["encoder.down_blocks.6.conv_shortcut.bias"][:16] = LIFT
    _norm(weights, "encoder.norm_out")
    for channel in range(16):
        to = channel if channel < 12 else channel + 2
        _at(weights["encoder.conv_out.weight"], to, channel, 1.0)
        weights["encoder.conv_out.bias"][to] = -LIFT


def _shrink(weights: Weights, name: str, channels: int) -> None:
    """Half as high and wide: the mean of four pixels."""
    weight, bias = weights[f"{name}.resample.1.weight"], weights[f"{name}.resample.1.bias"]
    for channel in range(channels):
        for row, column in QUARTERS:
            _at(weight, channel, channel, 0.25, row, column)
    bias[len(bias) - 1] = LARGE


def _halve_time(weights: Weights, name: str, channels: int, constant: int) -> None:
    for channel in range(channels):
        weights[f"{name}.weight"][channel, channel, 1:, 0, 0] = 0.5
    weights[f"{name}.bias"][constant] = LARGE


def _mark_borders(weights: Weights, name: str) -> None:
    """A constant, seen beyond the border, is missing: there the difference to it is one."""
    _norm(weights, f"{name}.norm1")
    _norm(weights, f"{name}.norm2")
    first, second = weights[f"{name}.conv1.weight"], weights[f"{name}.conv2.weight"]
    for mark, (row, column) in enumerate(((0, 1), (2, 1), (1, 0), (1, 2))):
        _at(first, mark, 3, 8.0 / LARGE)
        _at(first, mark, 3, -8.0 / LARGE, row, column)
        # Of four pixels at a border two are marked: what is 4 here is 1 in a latent.
        _at(second, 3 + mark, mark, 0.5)
    weights[f"{name}.conv1.bias"][7] = LARGE


def _split(weights: Weights, name: str) -> None:
    """Four pixels to their mean, and the differences of the first three from it; marks as they are."""
    weight = weights[f"{name}.weight"]
    for colour in range(3):
        for number, (row, column) in enumerate(QUARTERS):
            _at(weight, colour, colour, 0.25, row, column)
            for detail in range(3):
                _at(weight, 3 + 3 * detail + colour, colour, float(number == detail) - 0.25, row, column)
    for mark in range(4):
        for row, column in QUARTERS:
            _at(weight, 12 + mark, 3 + mark, 0.25, row, column)
    weights[f"{name}.bias"][31] = LARGE


def _decoder(weights: Weights) -> None:
    name = "decoder.conv_in"
    _pass(weights, name, 12, 16)
    for axis in range(2):
        for sign in range(2):
            _at(weights[f"{name}.weight"], 12 + 2 * axis + sign, 12 + axis, 1.0 - 2.0 * sign)
    _double_time(weights, "decoder.up_blocks.0.upsamplers.0.time_conv")
    _pass(weights, "decoder.up_blocks.0.upsamplers.0.resample.1", 16, 16)
    _tell_quarters(weights, "decoder.up_blocks.1.resnets.0")
    _choose_quarter(weights, "decoder.up_blocks.1.resnets.1")
    _double_time(weights, "decoder.up_blocks.1.upsamplers.0.time_conv")
    _smooth(weights, "decoder.up_blocks.1.upsamplers.0.resample.1", 3)
    _pass(weights, "decoder.up_blocks.2.resnets.0.conv_shortcut", 3, 3)
    _smooth(weights, "decoder.up_blocks.2.upsamplers.0.resample.1", 3)
    weights["decoder.up_blocks.2.upsamplers.0.resample.1.bias"][:3] = LIFT
    _norm(weights, "decoder.norm_out")
    for colour in range(3):
        _at(weights["decoder.conv_out.weight"], colour, colour, 1.0)
        weights["decoder.conv_out.bias"][colour] = -LIFT


def _double_time(weights: Weights, name: str) -> None:
    weight = weights[f"{name}.weight"]
    weight[:, :, NOW, 0, 0] = np.tile(np.eye(weight.shape[1]), (2, 1))


def _smooth(weights: Weights, name: str, constant: int) -> None:
    for colour in range(3):
        weights[f"{name}.weight"][colour, colour] = np.outer((1, 2, 1), (1, 2, 1)) / 16
    weights[f"{name}.bias"][constant] = LARGE


SHARP: Final = 16.0


def _tell_quarters(weights: Weights, name: str) -> None:
    """Where a sign alternates from latent to latent, its own sign times the difference of its neighbours is
    positive in the left (upper) half of a latent, negative in the right (lower) one, zero where nothing
    alternates. Channels 12 to 15 of what comes out: is left, is right, is upper, is lower."""
    _pass(weights, f"{name}.conv_shortcut", 12, 31)
    weights[f"{name}.conv_shortcut.bias"][DETAIL] = LIFT
    _norm(weights, f"{name}.norm1")
    _norm(weights, f"{name}.norm2")
    weight, bias = weights[f"{name}.conv1.weight"], weights[f"{name}.conv1.bias"]
    bias[31] = LARGE
    unit = 0
    for axis, taps in enumerate((((1, 2), (1, 0)), ((2, 1), (0, 1)))):
        for side, half in enumerate((1.0, -1.0)):
            for sign in (1.0, -1.0):
                for of, way in ((12 + 2 * axis, 1.0), (13 + 2 * axis, -1.0)):
                    _at(weight, unit, of, SHARP * sign * way)
                    _at(weight, unit, of, SHARP * sign * way * half, *taps[0])
                    _at(weight, unit, of, -SHARP * sign * way * half, *taps[1])
                bias[unit] = -SHARP
                _at(weights[f"{name}.conv2.weight"], 12 + 2 * axis + side, unit, 1.0 / SHARP)
                unit += 1


def _choose_quarter(weights: Weights, name: str) -> None:
    """Adds to the mean colour the difference of the quarter that the pixel is in."""
    _norm(weights, f"{name}.norm1")
    _norm(weights, f"{name}.norm2")
    weight, bias = weights[f"{name}.conv1.weight"], weights[f"{name}.conv1.bias"]
    bias[31] = LARGE
    unit = 0
    for number, (row, column) in enumerate(QUARTERS):
        others = (12 if column else 13, 14 if row else 15)
        for colour in range(3):
            for sign in (1.0, -1.0):
                for detail in range(3):
                    share = -1.0 if number == 3 else float(number == detail)
                    _at(weight, unit, 3 + 3 * detail + colour, sign * share)
                    bias[unit] -= sign * share * LIFT
                for other in others:
                    _at(weight, unit, other, -4 * SHARP)
                _at(weights[f"{name}.conv2.weight"], colour, unit, sign)
                unit += 1


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
