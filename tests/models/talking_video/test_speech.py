"""What is heard against the reference in float64, and what of it a stretch must not change."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
import reference_ear

from stoker.models.talking_video.speech import PER_FRAME, EncodedSpeech, Samples, Stretch, layers_of

FIRST = PER_FRAME // 5
"""Places of the first convolution in a frame."""

ALONE = Stretch(behind_s=0.0, ahead_s=0.0)


@pytest.fixture(scope="module")
def encoder(drawn_talker: Any) -> Any:
    return drawn_talker.speech_encoder


def weights_of(encoder: Any) -> dict[str, Any]:
    return {name: value.double().numpy() for name, value in encoder.state_dict().items()}


def noise(frames: int, extra: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(1).normal(0, 1, frames * PER_FRAME + extra)


def unit(wave: NDArray[np.float64]) -> NDArray[np.float64]:
    out: NDArray[np.float64] = wave / np.sqrt((wave**2).mean())
    return out


@pytest.mark.parametrize(("frames", "extra"), [(1, 0), (5, 0), (30, 0), (30, 639)])
def test_every_layer_is_the_references(
    encoder: Any, frames: int, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = unit(noise(frames, extra))
    config = encoder.config
    theirs = reference_ear.layers(
        weights_of(encoder), wave, frames, config.num_hidden_layers, config.num_attention_heads
    )
    whole = copy.deepcopy(encoder).double()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    with torch.inference_mode():
        ours = layers_of(whole, torch.from_numpy(wave).unsqueeze(0), frames)
    assert np.std(theirs) > 0.1, "the reference says nothing"
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("told", "gain"), [({}, 1.0), ({"do_normalize": True}, 1.0), ({"do_normalize": False}, 0.06)]
)
def test_it_hears_a_voice_as_loud_as_it_was_trained_on(
    encoder: Any, told: dict[str, bool], gain: float
) -> None:
    """At -23 LUFS, or at unit variance: the norm's own small number is heard in quiet channels."""
    wave, frames, config = unit(noise(30)), 30, encoder.config
    ear = copy.deepcopy(encoder)
    for name in ("do_normalize", *told):
        vars(ear.config).pop(name, None)
    vars(ear.config).update(told)
    with torch.no_grad():
        ear.feature_extractor.conv_layers[0].conv.weight.mul_(0.02)
    voice = Samples((0.06 * wave).astype(np.float32), 0.0, 0.06)
    with torch.inference_mode():
        ours = EncodedSpeech(ear, voice, frames).features(0, frames)
    theirs = reference_ear.layers(
        weights_of(ear), gain * wave, frames, config.num_hidden_layers, config.num_attention_heads
    )
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("faint", [1.0, 0.1, 0.003])
@pytest.mark.parametrize("first", [10, 120], ids=["a pause", "speech"])
def test_a_stretch_is_as_loud_as_in_the_whole(encoder: Any, faint: float, first: int) -> None:
    """A recording whose first half is the noise of the room."""
    wave = noise(200)
    wave[: 100 * PER_FRAME] *= faint
    wave = unit(wave)
    found = heard_first(encoder, wave, first, first + 50)
    whole = reference_ear.first_sounds(weights_of(encoder), wave)
    wanted = whole[:, first * FIRST : first * FIRST + found.shape[1]]
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.05 * np.sqrt((whole**2).mean())


def heard_first(encoder: Any, wave: NDArray[np.float64], first: int, last: int) -> NDArray[np.float32]:
    """What the first convolution passes on of a stretch, (channels, places)."""
    found: list[torch.Tensor] = []
    hook = encoder.feature_extractor.conv_layers[0].register_forward_hook(
        lambda module, given, output: found.append(output[0])
    )
    speech = EncodedSpeech(encoder, Samples(wave.astype(np.float32), 0.0, 1.0), len(wave) // PER_FRAME, ALONE)
    with hook, torch.inference_mode():
        speech.features(first, last)
    return found[0].numpy()


def test_of_silence_beside_speech_nothing_is_heard(encoder: Any) -> None:
    wave = noise(60)
    wave[: 50 * PER_FRAME] = 0
    assert not heard_first(encoder, wave, 0, 40).any()


def test_nothing_stays_with_the_encoder(encoder: Any) -> None:
    wave = torch.from_numpy(noise(4)).float().unsqueeze(0)
    with torch.inference_mode():
        before = encoder(wave).last_hidden_state
        layers_of(encoder, wave * 0.01, 4, level=0.01)
        assert torch.equal(encoder(wave).last_hidden_state, before)
