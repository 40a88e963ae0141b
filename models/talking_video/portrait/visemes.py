"""The visemes of speech: what the mouth does at each hundredth of a second.

    samples (16 kHz) ──> log-mel bands, 100 a second ──> three convolutions over time ──> 14 visemes

A viseme is a group of sounds that look alike: p, b and m close the lips, f and v put the teeth on the lower
lip. `SOUNDS` names the groups. The network has been trained by `training` on speech of espeak-ng. It computes
in 64 bits, and its answers have 32: the order of sums, which the number of threads decides, is lost in the
rounding, so that the same voice moves the mouth in the same way wherever it is heard.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

RATE: Final = 16_000
HOP, WINDOW = 160, 400
"""Samples from one step to the next, and under each."""

BANDS: Final = 40
LOWEST_HZ, HIGHEST_HZ = 60.0, 7600.0
FLOOR: Final = 1e-4
"""Added to the power of a band; the wave has a variance of 1."""

SOUNDS: Final = ("sil", "pbm", "fv", "th", "tdnl", "kgh", "sh", "sz", "r", "a", "e", "i", "o", "u")
WIDTH: Final = 80
REACH: Final = 24
"""Steps on each side that a step's visemes may depend on."""

BLOCK: Final = 3000
"""Steps that are computed at once: half a minute."""


class Network(torch.nn.Module):
    """The network that hears visemes: (n, BANDS, steps) of log-mel bands to (n, visemes, steps) of logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv1d(BANDS, WIDTH, 5, padding=2),
            torch.nn.GELU(),
            torch.nn.Conv1d(WIDTH, WIDTH, 5, padding=4, dilation=2),
            torch.nn.GELU(),
            torch.nn.Conv1d(WIDTH, WIDTH, 5, padding=8, dilation=4),
            torch.nn.GELU(),
            torch.nn.Conv1d(WIDTH, WIDTH, 5, padding=8, dilation=4),
            torch.nn.GELU(),
            torch.nn.Conv1d(WIDTH, len(SOUNDS), 1),
        )

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(bands)
        return found


def read(path: Path) -> Network:
    """Returns the trained network of a safetensors file."""
    from safetensors.torch import load_file

    network = Network().double()
    network.load_state_dict({name: value.double() for name, value in load_file(path).items()})
    return network.eval()


@functools.cache
def _filters() -> torch.Tensor:
    """Triangles at equal distances in mel (O'Shaughnessy's 2595 log10(1 + f / 700)): (bins, BANDS)."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (LOWEST_HZ, HIGHEST_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    hz = np.fft.rfftfreq(512, 1 / RATE)[:, None]
    rising = (hz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hz) / (edges[2:] - edges[1:-1])
    return torch.from_numpy(np.clip(np.minimum(rising, falling), 0, None))


def log_mel(samples: NDArray[np.float32]) -> torch.Tensor:
    """Returns the bands of a wave of variance 1: (samples // HOP, BANDS). Step n is about the middle of its
    HOP."""
    steps = len(samples) // HOP
    around = (WINDOW - HOP) // 2
    wave = torch.from_numpy(np.pad(samples[: steps * HOP], around)).double()
    frames = wave.unfold(0, WINDOW, HOP) * torch.hann_window(WINDOW, dtype=torch.float64)
    power = torch.fft.rfft(frames, 512).abs().square() / WINDOW
    return torch.log(power @ _filters() + FLOOR)


def visemes(
    network: Network, samples: NDArray[np.float32], mean: float, deviation: float
) -> NDArray[np.float32]:
    """Returns the probability of each viseme, (samples // HOP, visemes). `mean` and `deviation` are those of
    all samples. Memory is bounded: the samples, which may be on disk, are read block by block."""
    with torch.inference_mode():
        parts = list(_blocks(network, samples, mean, max(deviation, 1e-4)))
    return np.concatenate(parts) if parts else np.zeros((0, len(SOUNDS)), np.float32)


def _blocks(
    network: Network, samples: NDArray[np.float32], mean: float, deviation: float
) -> Iterator[NDArray[np.float32]]:
    steps = len(samples) // HOP
    for first in range(0, steps, BLOCK):
        last = min(first + BLOCK, steps)
        begin, end = max(first - REACH, 0), min(last + REACH, steps)
        wave = (np.asarray(samples[begin * HOP : end * HOP], np.float32) - mean) / deviation
        found = network(log_mel(wave).T[None]).softmax(1)[0].T
        yield found[first - begin : last - begin].float().numpy()
