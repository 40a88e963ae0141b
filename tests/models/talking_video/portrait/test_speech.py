"""From audio to mouths: visemes, their shapes, and what else the face does."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.interface import VideoParameters
from stoker.models.talking_video.audio.speech import Samples
from stoker.models.talking_video.portrait import visemes
from stoker.models.talking_video.portrait.engine import TalkMini
from stoker.models.talking_video.portrait.motion import motion
from stoker.models.talking_video.portrait.shapes import mouth_shapes
from stoker.models.talking_video.portrait.visemes import HOP, RATE, SOUNDS
from stoker.models.talking_video.sampling.chunks import FPS
from training.visemes.sounds import visemes_of

VOICES = Path(__file__).parent / "voices"


def samples(name: str) -> Samples:
    values, rate = soundfile.read(VOICES / f"{name}.flac", dtype="float32")
    assert rate == RATE
    return Samples(values, float(values.mean()), float(values.std()))


def found(talk_mini: TalkMini, voice: Samples) -> Any:
    return visemes.visemes(talk_mini._network, voice.values, voice.mean, voice.deviation)


@pytest.mark.parametrize(
    ("phoneme", "group"),
    [
        ("p", "pbm"),
        ("v", "fv"),
        ("tS", "sh"),
        ("dZ", "sh"),
        ("ts", "sz"),
        ("D", "th"),
        ("N", "kgh"),
        ("w", "u"),
    ],
)
def test_each_consonant_has_a_group(phoneme: str, group: str) -> None:
    assert visemes_of(phoneme) == (group,)


@pytest.mark.parametrize(
    ("phoneme", "groups"),
    [
        ("A:", ("a",)),
        ("aI", ("a", "i")),
        ("oU", ("o", "u")),
        ("e@", ("e",)),
        ("_:", ("sil",)),
        ("", ("sil",)),
    ],
)
def test_each_half_of_a_diphthong_has_its_own(phoneme: str, groups: tuple[str, ...]) -> None:
    assert visemes_of(phoneme) == groups


def test_blocks_make_no_difference(talk_mini: TalkMini, monkeypatch: pytest.MonkeyPatch) -> None:
    voice = samples("slt")
    whole = found(talk_mini, voice)
    assert whole.shape == (len(voice.values) // HOP, len(SOUNDS))
    assert whole.sum(axis=1) == pytest.approx(1, abs=1e-4)
    monkeypatch.setattr(visemes, "BLOCK", 70)
    assert found(talk_mini, voice) == pytest.approx(whole, abs=1e-3)


def test_the_number_of_threads_makes_no_difference(talk_mini: TalkMini) -> None:
    """Sums of 32 bits would differ in their last bits."""
    voice, threads = samples("slt"), torch.get_num_threads()
    made = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            made.append(found(talk_mini, voice))
    finally:
        torch.set_num_threads(threads)
    assert all(np.array_equal(made[0], other) for other in made[1:])


def test_the_level_makes_no_difference(talk_mini: TalkMini) -> None:
    voice = samples("slt")
    quiet = Samples(voice.values / 50, voice.mean / 50, voice.deviation / 50)
    assert found(talk_mini, quiet) == pytest.approx(found(talk_mini, voice), abs=1e-2)


@given(st.integers(0, 40), st.integers(0, 400), st.randoms(use_true_random=False))
def test_shapes_are_bounded(frames: int, steps: int, rng: Any) -> None:
    probabilities = np.random.default_rng(rng.randrange(2**32)).dirichlet([0.3] * len(SOUNDS), steps)
    shapes = mouth_shapes(probabilities.astype(np.float32), frames)
    assert shapes.shape == (frames, 2)
    assert (shapes[:, 0] >= 0).all()
    assert (np.abs(shapes) <= 1.001).all()


@pytest.mark.parametrize("sound", ["sil", "pbm"])
def test_closed_lips_stay_closed_between_open_ones(sound: str) -> None:
    steps = np.zeros((60, len(SOUNDS)), np.float32)
    steps[:, SOUNDS.index("a")] = 1
    steps[28:32] = 0
    steps[28:32, SOUNDS.index(sound)] = 1
    opening = mouth_shapes(steps, 15)[:, 0]
    assert opening[7] == 0
    assert opening[3] > 0.9


@given(st.integers(0, 2**32 - 1), st.integers(1, 2000))
def test_motion_begins_with_the_image_and_stays_small(seed: int, frames: int) -> None:
    moved = motion(seed, frames)
    assert moved.closed[0] == moved.turn[0] == moved.right[0] == moved.down[0] == 0
    assert (np.abs(moved.turn) <= 0.0141).all()
    assert ((moved.closed >= 0) & (moved.closed <= 1)).all()
    again = motion(seed, frames)
    assert (again.turn == moved.turn).all()
    if frames > 250:
        assert moved.closed.max() == 1


def frames_of(talk_mini: TalkMini, image: Any, voice: Samples, frames: int, seed: int = 3) -> Any:
    parameters = VideoParameters("a face", "480p", seed, image, voice, frames)
    parts = talk_mini.generate(parameters, lambda step: None, lambda: True)
    return np.concatenate([part.pixels.numpy() for part in parts])


def test_silence_keeps_the_mouth_closed(talk_mini: TalkMini, drawing: Any) -> None:
    silence = Samples(np.zeros(RATE, np.float32), 0.0, 0.0)
    frames = frames_of(talk_mini, drawing, silence, 25)
    assert len(frames) == 25
    dark = (frames[:, :, 372:500, 262:378].max(axis=1) < -0.1).sum(axis=(1, 2))
    assert dark.max() < dark[0] + 40


@pytest.mark.slow
@pytest.mark.numbers
def test_the_same_seed_makes_the_same_frames(talk_mini: TalkMini, drawing: Any) -> None:
    """Also those after the first chunk."""
    digests = [
        hashlib.sha256(frames_of(talk_mini, drawing, samples("slt"), FPS + 1, seed).tobytes()).hexdigest()
        for seed in (3, 3, 4)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_it_stops_when_it_is_asked_to(talk_mini: TalkMini, drawing: Any) -> None:
    parameters = VideoParameters("a face", "480p", 3, drawing, samples("slt"), 100)
    asked = iter([True] * 3 + [False])
    steps: list[int] = []
    parts = list(talk_mini.generate(parameters, lambda step: steps.append(step.chunk), lambda: next(asked)))
    assert [part.first for part in parts] == [0, 5, 10]
    assert steps == [1, 1, 1]
