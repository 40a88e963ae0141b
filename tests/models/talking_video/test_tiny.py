"""talk-tiny: the same bytes everywhere, for the shapes of the classes; and its videos show the image, whose
mouth moves with the voice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.models.talking_video.tiny import tiny
from stoker.models.weights import read_lock, verify
from tests.models.talking_video.tiny_shapes import shapes

SIDE = 160
FRAMES = 17


def test_the_shapes_are_those_of_the_classes() -> None:
    assert tiny._shapes() == shapes()


def test_it_is_as_locked(talk_tiny: Path) -> None:
    verify(read_lock().entry("talk-tiny"), talk_tiny)


def test_it_is_made_the_same_without_torch() -> None:
    """In a process of its own, with another seed for hashes."""
    script = (
        "import hashlib, sys\n"
        "from stoker.models.talking_video.tiny import tiny\n"
        "made = tiny.files()\n"
        "assert not {'torch', 'diffusers', 'transformers'} & set(sys.modules)\n"
        "print(hashlib.sha256(b''.join(name.encode() + made[name] for name in sorted(made))).hexdigest())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-P", "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) == 65


class Loudness:
    """A voice of which only the ear's channels are given: low and high sounds, each 25 times a second."""

    frames = FRAMES

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def features(self, first: int, last: int) -> Any:
        import torch

        found = torch.zeros(last - first, 2, 16)
        found[..., 0], found[..., 1] = self.low, self.high
        return found


@pytest.fixture(scope="module")
def image() -> Any:
    """A bright disc on a dark ground, left of the middle."""
    import torch

    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    disc = (rows - 80) ** 2 + (columns - 60) ** 2 < 45**2
    return torch.where(disc, torch.tensor([0.5, 0.3, 0.1]).view(3, 1, 1), torch.tensor(-0.4)).float()


@pytest.fixture(scope="module")
def shown(video_pipeline: Any, image: Any) -> dict[str, Any]:
    """The last frames for each voice, and the words that are the same."""
    import torch

    from stoker.models.talking_video.pipeline import encode_scene, generate
    from stoker.models.talking_video.sampling.settings import SETTINGS

    scene = encode_scene(video_pipeline, "a face", image)
    sounds = {"silent": Loudness(0, 0), "low": Loudness(0.7, 0), "high": Loudness(0, 0.7)}
    return {
        name: torch.cat(
            [
                frames.pixels
                for frames in generate(
                    video_pipeline, scene, sound, SETTINGS["tiny"], "480p", 1, lambda _: True
                )
            ]
        )[-1]
        for name, sound in sounds.items()
    }


class TestVideo:
    @pytest.mark.slow
    @pytest.mark.numbers
    def test_silence_shows_the_image(self, shown: dict[str, Any], image: Any) -> None:
        assert float((shown["silent"] - image).abs().mean()) < 0.06
        inside = (slice(None), slice(60, 100), slice(40, 80))
        assert float((shown["silent"][inside] - image[inside]).abs().max()) < 0.1

    @pytest.mark.parametrize("sound", ["low", "high"])
    def test_audio_opens_a_dark_mouth_below_the_middle(self, shown: dict[str, Any], sound: str) -> None:
        darker = (shown["silent"] - shown[sound]).mean(dim=0)
        row, column = divmod(int(darker.argmax()), SIDE)
        assert float(darker.max()) > 0.5
        assert 85 <= row <= 120
        assert 65 <= column <= 95
        elsewhere = darker.clone()
        elsewhere[70:135, 45:115] = 0
        assert float(elsewhere.abs().mean()) < 0.1

    def test_two_sounds_open_it_differently(self, shown: dict[str, Any]) -> None:
        """Low sounds make it as high as wide, high ones wide."""
        ratio = {}
        for sound in ("low", "high"):
            dark = (shown["silent"] - shown[sound]).mean(dim=0) > 0.3
            rows, columns = np.nonzero(dark.numpy())
            ratio[sound] = np.ptp(columns) / max(np.ptp(rows), 1)
        assert ratio["low"] < 1.3
        assert ratio["high"] > 1.7


class TestSpeechEncoder:
    def encoded(self, video_pipeline: Any, wave: Any) -> Any:
        import torch

        from stoker.models.talking_video.audio.speech import EncodedSpeech, Samples

        samples = Samples(wave.astype(np.float32), float(wave.mean()), float(wave.std()))
        speech = EncodedSpeech(video_pipeline.speech_encoder, samples, len(wave) * 25 // 16_000)
        with torch.inference_mode():
            return speech.features(0, speech.frames)[:, -1]

    @pytest.mark.parametrize(("hertz", "louder"), [(140, 0), (900, 1)])
    def test_low_and_high_sounds_and_silence_differ(
        self, video_pipeline: Any, hertz: int, louder: int
    ) -> None:
        time = np.arange(16_000) / 16_000
        found = self.encoded(video_pipeline, np.where(time < 0.5, 0.0, np.sin(2 * np.pi * hertz * time)))
        levels = found[:, :2] - found[:, 2:3]
        assert float(levels[:8].abs().max()) < 0.05
        assert float(levels[17:, louder].mean()) > 0.2
        assert float(levels[17:, louder].mean()) > 3 * float(levels[17:, 1 - louder].mean())

    def test_silence_is_no_sound(self, video_pipeline: Any) -> None:
        found = self.encoded(video_pipeline, np.zeros(16_000))
        assert float((found[:, :2] - found[:, 2:3]).abs().max()) < 0.01
