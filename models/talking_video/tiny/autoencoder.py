"""The autoencoder of `talk-tiny`, with weights set by hand so that its videos are worth looking at.

    encoder   a latent holds the mean colour of 8 x 8 pixels, the differences of its four quarters,
              and marks at the borders of the image
    decoder   draws the quarters at their positions

Techniques: norms divide by a length, so a large constant channel makes them almost linear. `silu` is almost
linear for large numbers and almost zero for small ones: pairs of channels pass numbers on, or choose between
them. A decoder of convolutions cannot distinguish left quarters from right ones, unless latents alternate in
sign; the bias of the network writes such latents (see `network`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from stoker.models.made_weights import Array

Weights: TypeAlias = dict[str, Array]

LATENTS: Final = 18
BASE: Final = 4
MULTIPLES: Final = (1, 2, 8, 10)

LARGE: Final = 512.0
"""The value of the constant channel of the autoencoder."""

LIFT: Final = 8.0
"""The offset of numbers near zero that `silu` must pass on."""

MEAN, DETAIL, ALTERNATE, MARKS = slice(0, 3), slice(3, 12), slice(12, 14), slice(14, 18)
"""Latents: the mean colour, the differences of three of the quarters from it, signs that alternate along rows
and columns, and marks at the top, bottom, left and right borders."""

QUARTERS: Final = ((0, 0), (0, 1), (1, 0), (1, 1))
NOW: Final = 2
"""The tap of a causal convolution for the present frame."""


def autoencoder(weights: Weights) -> None:
    for name in ("quant_conv", "post_quant_conv"):
        weight = weights[f"{name}.weight"]
        weight[:, :, 0, 0, 0] = np.eye(len(weight))
    _encoder(weights)
    _decoder(weights)


def _at(weight: Array, to: int, of: int, value: float, row: int = 1, column: int = 1) -> None:
    """Sets one tap of a convolution; of a causal one, the tap for the present frame."""
    if weight.ndim == 4:
        weight[to, of, row % weight.shape[2], column % weight.shape[3]] = value
    else:
        here = NOW % weight.shape[2], row % weight.shape[3], column % weight.shape[4]
        weight[(to, of, *here)] = value


def _norm(weights: Weights, name: str) -> None:
    gamma = weights[f"{name}.gamma"]
    gamma[...] = LARGE / np.sqrt(len(gamma))


def _pass(weights: Weights, name: str, channels: int, constant: int) -> None:
    """Passes the first channels on, and writes the constant channel."""
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
    """Halves height and width: the mean of four pixels."""
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
    """Marks the borders: the constant channel is zero beyond them, so its difference shows where they are."""
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
    """Turns four pixels into their mean and the differences of the first three from it; passes marks on."""
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
    _find_quarters(weights, "decoder.up_blocks.1.resnets.0")
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


def _find_quarters(weights: Weights, name: str) -> None:
    """Finds the quarter of each pixel. If a sign alternates from latent to latent, that sign times the
    difference of its neighbours is positive in the left (upper) half of a latent and negative in the right
    (lower) half. Output channels 12 to 15: is left, is right, is upper, is lower."""
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
    """Adds to the mean colour the difference of the pixel's quarter."""
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
