"""A voice is told from music, drums, noise and tones; music below a voice does not hide it.

The voices are flite's, made from recordings of people, and formants that a program moves; the sounds without
a voice are those that the weights were fitted with, from other seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stoker.models.interface import VideoParameters
from stoker.models.talking_video.audio.speech import Samples
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.portrait.visemes import HOP, RATE
from stoker.models.talking_video.portrait.voice import SHORT, voiced
from training.voice.sounds import MADE, Wave, level, music

VOICES = Path(__file__).parent / "voices"
DEMO = Path(__file__).parents[4] / "deploy" / "voice.flac"
FILES = (DEMO, *(VOICES / f"{name}.flac" for name in ("slt", "awb", "rms")))
VOWELS = ((730, 1090, 2440), (530, 1840, 2480), (270, 2290, 3010), (570, 840, 2410), (300, 870, 2240))
"""Formants of five vowels, in Hz (Peterson and Barney, 1952)."""


def said(seed: int, seconds: float) -> Wave:
    """Syllables of a consonant, as noise, and a vowel of gliding pitch and formants; a pause after six."""
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    base = rng.uniform(95, 230)
    while sum(map(len, parts)) < seconds * RATE:
        hiss = np.diff(rng.normal(0, 1, int(rng.uniform(0.03, 0.09) * RATE)))
        vowel = np.arange(int(rng.uniform(0.09, 0.22) * RATE)) / RATE
        part = vowel / vowel[-1]
        hz = base * rng.uniform(0.8, 1.25) * (1 + rng.uniform(-0.25, 0.25) * part)
        (one, other), swell = rng.choice(VOWELS, 2), np.sin(np.pi * part) ** 0.5
        formants = one[:, None] + (other - one)[:, None] * part
        turns, found = 2 * np.pi * np.cumsum(hz) / RATE, np.zeros(len(vowel))
        for n in range(1, int(4000 / base)):
            heard = (1 / (1 + ((n * hz - formants) / 80) ** 2)).sum(axis=0)
            found += heard * np.sin(n * turns) / n**0.5
        parts += [0.15 * hiss, swell * found, np.zeros(int(rng.choice([0.01, 0.04, 0.04, 0.3]) * RATE))]
    wave = np.concatenate(parts)[: int(seconds * RATE)]
    return level(wave + 0.003 * rng.normal(0, 1, len(wave)))


def spoken(path: Path) -> Wave:
    values, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return level(values)


def part_voiced(wave: Wave) -> float:
    found = voiced(wave, float(wave.mean()), float(wave.std()))
    assert found.shape == (len(wave) // HOP,)
    return float(found.mean())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_voice_is_one_from_beginning_to_end(path: Path) -> None:
    assert part_voiced(spoken(path)) > 0.98


@pytest.mark.parametrize("seed", range(4))
def test_moving_formants_are_a_voice(seed: int) -> None:
    assert part_voiced(said(seed, 5)) > 0.95


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.slow
@pytest.mark.numbers
def test_other_sounds_are_none(kind: str) -> None:
    """Of 24 seconds of each; a bar of music or drums may be mistaken."""
    rng = np.random.default_rng(11)
    assert np.mean([part_voiced(MADE[kind](rng, 6 * RATE)) for _ in range(4)]) < 0.08


@pytest.mark.parametrize("path", [DEMO, VOICES / "awb.flac", VOICES / "rms.flac"], ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", [21, 22])
def test_music_below_a_voice_does_not_hide_it(path: Path, seed: int) -> None:
    voice = spoken(path)
    below = music(np.random.default_rng(seed), len(voice))
    assert part_voiced(level(voice + 0.25 * below)) > 0.9


def test_only_the_part_with_the_voice_is_voiced() -> None:
    voice, rng = spoken(VOICES / "awb.flac"), np.random.default_rng(31)
    wave = np.concatenate([music(rng, 6 * RATE), voice, music(rng, 6 * RATE)])
    found, end = voiced(wave, 0.0, 1.0), 600 + len(voice) // HOP
    assert found[:400].max() < 0.05
    assert found[650 : end - 50].min() > 0.9
    assert found[end + 200 :].max() < 0.05


@given(
    arrays(np.float32, st.integers(0, 4 * RATE), elements=st.floats(-1, 1, width=32), fill=st.just(0)),
    st.floats(-1, 1),
    st.floats(0, 1),
)
def test_any_samples_have_a_number_from_0_to_1_for_each_step(
    samples: Any, mean: float, deviation: float
) -> None:
    found = voiced(samples, mean, deviation)
    assert found.shape == (len(samples) // HOP,)
    assert ((found >= 0) & (found <= 1)).all()
    if len(found) < SHORT:
        assert (found == 1).all()


@pytest.mark.parametrize("factor", [0.02, 0.5, 30.0])
def test_the_level_makes_no_difference(factor: float) -> None:
    wave = np.concatenate([said(1, 3), music(np.random.default_rng(1), 3 * RATE)])
    louder = voiced(wave * np.float32(factor), 0.0, factor)
    assert louder == pytest.approx(voiced(wave, 0.0, 1.0), abs=0.01)


def test_music_does_not_move_the_mouth_and_a_voice_over_it_does(talk_mini: TalkMini, drawing: Any) -> None:
    def opened(wave: Wave) -> float:
        samples = Samples(wave, float(wave.mean()), float(wave.std()))
        poses = talk_mini._poses(VideoParameters("a face", "480p", 3, drawing, samples, 100))
        return max(pose.opening for pose in poses)

    voice = spoken(VOICES / "rms.flac")[: 4 * RATE]
    alone = music(np.random.default_rng(41), 4 * RATE)
    assert opened(alone) == 0
    assert opened(level(voice + 0.2 * alone)) > 0.5
