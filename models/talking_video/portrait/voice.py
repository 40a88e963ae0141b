"""The parts of a recording in which somebody speaks, from four measures of each two seconds. Pure.

    samples ──> fine spectrum ──> harmonics: how clear they are, and whether they stay where they are
            └─> bands of mel  ──> changes as fast as syllables; low and high bands by turns
                                     └──> weighted sum ──> averaged over neighbours ──> voice or not

A voice has clear harmonics that glide, syllables, and consonants that are high where vowels are low. The
tones of music stay, drums and noise have no harmonics. Singing glides less the longer its notes are: sung
words may count as a voice or not. A voice that is not louder than the music below it is often missed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.visemes import HOP, RATE, log_mel

SECOND: Final = RATE // HOP
"""Steps of the visemes in a second."""

WINDOW, APART = 2 * SECOND, SECOND // 2
"""Steps that are measured together, and from one window to the next."""

FINE: Final = 1024
"""Samples under a step of the fine spectrum: its lines are 16 Hz apart, so harmonics are."""

LINES: Final = slice(6, 190)
"""The lines that are looked at: 94 Hz to 3 kHz."""

SMOOTH: Final = 9
"""Lines over which the mean is taken off, so that harmonics stay and formants do not."""

LATER: Final = 10
"""Steps after which a tone is still there, and the harmonics of a voice are elsewhere."""

SYLLABLES, CHANGES = (2.5, 8.0), (0.4, 30.0)
"""Changes a second: those of syllables, and all that count."""

LOW, HIGH = slice(3, 14), slice(28, 40)
"""Bands of mel in which vowels and consonants are strong."""

WEIGHTS: Final = (31.0, -36.0, 15.0, -3.0)
BIAS: Final = -20.5
"""Of `measures`, in its order; fitted by `training.voice`, and the bias raised by a half: a mouth that a
voice does not move is worse than one that moves to a bar of music."""

NEIGHBOURS: Final = np.array([1, 2, 3, 2, 1], np.float32)
FAINT: Final = 0.03
"""The level under which a window says nothing, where that of the whole recording is 1."""

SHORT: Final = SECOND
"""Steps of a recording that is too short for syllables; it counts as a voice."""


def voiced(samples: NDArray[np.float32], mean: float, deviation: float) -> NDArray[np.float32]:
    """Returns how sure a voice is in each step, (samples // HOP,), from 0 to 1. `mean` and `deviation` are
    those of all samples, which may be on disk: a window is read at a time."""
    steps = len(samples) // HOP
    if steps < SHORT:
        return np.ones(steps, np.float32)
    firsts = np.arange(0, max(steps - WINDOW, 0) + 1, APART)
    scores, levels = np.zeros((2, len(firsts)), np.float32)
    for n, first in enumerate(firsts):
        part = np.asarray(samples[first * HOP : (first + WINDOW) * HOP], np.float32)
        wave = (part - mean) / max(deviation, 1e-4)
        levels[n] = wave.std() if len(wave) else 0
        if levels[n] > FAINT:
            scores[n] = np.dot(measures(wave), WEIGHTS) + BIAS
    sure = np.clip(_averaged(np.clip(scores, -4, 4), levels), 0, 1)
    middles = firsts + min(WINDOW, steps) / 2
    between = np.interp(np.arange(steps), middles, sure)
    found: NDArray[np.float32] = np.clip(2 * between, 0, 1).astype(np.float32)  # begins in time
    return found


def measures(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns four measures of a wave of about WINDOW steps and a level around 1: how clear harmonics are,
    how far they stay, the part of syllables in all changes, and how far low and high bands go together."""
    with torch.inference_mode():
        clear, stay = _harmonics(wave)
        bands = log_mel(wave).numpy()
    return np.array([clear, stay, _syllables(bands), _together(bands)], np.float32)


def _averaged(scores: NDArray[np.float32], levels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the mean of each score and its neighbours', by their levels."""
    side = len(NEIGHBOURS) // 2
    weights = np.where(levels > FAINT, levels, 0)
    sums, of = (np.convolve(np.pad(row, side), NEIGHBOURS, "valid") for row in (scores * weights, weights))
    found: NDArray[np.float32] = (sums / np.maximum(of, 1e-6)).astype(np.float32)
    return found


def _harmonics(wave: NDArray[np.float32]) -> tuple[float, float]:
    padded = torch.from_numpy(np.pad(wave, FINE // 2))
    spectrum = torch.fft.rfft(padded.unfold(0, FINE, HOP) * torch.hann_window(FINE)).abs()[:, LINES]
    power = spectrum.square().sum(1)
    lines = torch.log(spectrum + 1e-2)
    lines -= torch.nn.functional.avg_pool1d(lines, SMOOTH, 1, SMOOTH // 2)
    loud = power > 0.1 * power.mean()
    before, after = lines[:-LATER], lines[LATER:]
    both = loud[:-LATER] & loud[LATER:]
    if not both.any():
        return 0.0, 1.0
    alike = torch.nn.functional.cosine_similarity(before, after, dim=1)
    return float(lines[loud].std()), float(alike[both].median())


def _syllables(bands: NDArray[np.float64]) -> float:
    """Returns the part of the changes that are as fast as syllables."""
    changes = (bands - bands.mean(axis=0)) * np.hanning(len(bands))[:, None]
    power = np.square(np.abs(np.fft.rfft(changes, axis=0))).sum(axis=1)
    rates = np.fft.rfftfreq(len(bands), 1 / SECOND)
    some, all_ = (float(power[(rates >= low) & (rates < high)].sum()) for low, high in (SYLLABLES, CHANGES))
    return some / max(all_, 1e-6)


def _together(bands: NDArray[np.float64]) -> float:
    """Returns the correlation of the low and the high bands."""
    low, high = bands[:, LOW].mean(axis=1), bands[:, HIGH].mean(axis=1)
    spread = float(low.std() * high.std())
    return float(np.mean((low - low.mean()) * (high - high.mean()))) / spread if spread > 1e-3 else 1.0
