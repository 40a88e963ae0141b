"""Sounds without a voice, made by a program: music, drums, noise, tones. A seed gives the same sounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.visemes import RATE

Wave: TypeAlias = NDArray[np.float32]
Rng: TypeAlias = np.random.Generator

CHORDS: Final = ((0, 4, 7), (-3, 0, 4), (5, 9, 12), (7, 11, 14), (2, 5, 9))
"""Semitones above the key."""


def level(wave: NDArray[np.floating]) -> Wave:
    """Returns the wave with a mean of 0 and a deviation of 1."""
    found: Wave = ((wave - wave.mean()) / max(float(wave.std()), 1e-4)).astype(np.float32)
    return found


def noise(rng: Rng, samples: int) -> Wave:
    """Returns noise whose power falls with its frequency, by a random exponent."""
    spectrum = np.fft.rfft(rng.normal(0, 1, samples))
    hz = np.maximum(np.fft.rfftfreq(samples, 1 / RATE), 30)
    return level(np.fft.irfft(spectrum * hz ** (-rng.uniform(0, 3) / 2), samples))


def gusts(rng: Rng, samples: int) -> Wave:
    """Returns noise whose level changes all the time, as of wind, waves or rubbing."""
    points = np.linspace(0, samples, samples * 6 // RATE + 2)
    return level(noise(rng, samples) * np.interp(np.arange(samples), points, rng.random(len(points)) ** 2))


def tone(rng: Rng, samples: int) -> Wave:
    """Returns one tone, as loud as its beat says."""
    at = np.arange(samples) / RATE
    beat = 1 + 0.9 * np.sin(2 * np.pi * rng.uniform(1, 5) * at)
    return level(np.sin(2 * np.pi * rng.uniform(100, 800) * at) * beat)


def siren(rng: Rng, samples: int) -> Wave:
    at = np.arange(samples) / RATE
    hz = 600 + 300 * np.sin(2 * np.pi * rng.uniform(0.2, 4) * at)
    return level(np.sin(2 * np.pi * np.cumsum(hz) / RATE))


def drums(rng: Rng, samples: int) -> Wave:
    """Returns a bass drum, a snare drum and a cymbal, in a random pattern of 16 steps that repeats."""
    at = np.arange(int(0.4 * RATE)) / RATE
    bass = np.sin(2 * np.pi * (rng.uniform(45, 70) * at + 2 * (1 - np.exp(-at * 30)))) * np.exp(
        -at * rng.uniform(6, 15)
    )
    snare = (0.6 * rng.normal(0, 1, len(at)) + 0.5 * np.sin(2 * np.pi * rng.uniform(160, 230) * at)) * np.exp(
        -at * rng.uniform(12, 25)
    )
    cymbal = 0.4 * np.diff(rng.normal(0, 1, len(at) + 1)) * np.exp(-at * rng.uniform(20, 80))
    pattern = rng.random((3, 16)) < np.array([[0.3], [0.2], [0.6]])
    pattern[0, [0, 8]] = pattern[1, [4, 12]] = True
    found, step = np.zeros(samples + len(at)), 15 / rng.uniform(80, 160) * RATE
    for number in range(int(samples / step)):
        begin = int(number * step)
        for sound, hits in zip((bass, snare, cymbal), pattern[:, number % 16], strict=True):
            found[begin : begin + len(at)] += hits * rng.uniform(0.6, 1) * sound
    return level(found[:samples])


def music(rng: Rng, samples: int) -> Wave:
    """Returns chords and a melody above them, of notes whose overtones fade, without drums."""
    beat = int(60 / rng.uniform(70, 140) * RATE)
    key, overtones = rng.uniform(90, 180), rng.uniform(0.5, 2.5)
    found = np.zeros(samples + 4 * beat)
    for number in range(0, samples // beat + 1):
        chord = CHORDS[number // 4 * 7 % len(CHORDS)]
        notes = [(12 + int(rng.choice(chord)), 1, 0.8)]
        notes += [(half, 4, 0.5) for half in chord] if number % 4 == 0 else []
        for half, beats, loud in notes:
            at = np.arange(beats * beat) / RATE
            hz = key * 2 ** (half / 12)
            parts = [np.sin(2 * np.pi * hz * n * at) * n**-overtones for n in range(1, 12)]
            swell = np.minimum(at / 0.02, 1) * np.exp(-at * rng.uniform(0.5, 3))
            found[number * beat : number * beat + len(at)] += loud * sum(parts) * swell
    return level(found[:samples])


def band(rng: Rng, samples: int) -> Wave:
    """Returns music with drums."""
    return level(music(rng, samples) + rng.uniform(0.3, 1) * drums(rng, samples))


MADE: Final[dict[str, Callable[[Rng, int], Wave]]] = {
    "noise": noise,
    "gusts": gusts,
    "tone": tone,
    "siren": siren,
    "drums": drums,
    "music": music,
    "band": band,
}
