"""The speech encoder against the reference in float64, and what a stretch must not change."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.audio import speech as speaking
from stoker.models.talking_video.audio.speech import PER_FRAME, EncodedSpeech, Samples, layers_of
from stoker.models.talking_video.audio.stretches import DEFAULT, Stretches
from stoker.models.talking_video.sampling.chunks import FPS
from tests.models.talking_video.audio import reference_speech_encoder

FIRST = PER_FRAME // 5
"""Places of the first convolution in a frame."""

ALONE = Stretches(whole_s=50 / FPS, behind_s=0.0, ahead_s=0.0)


@pytest.fixture(scope="module")
def encoder(drawn_video_pipeline: Any) -> Any:
    return drawn_video_pipeline.speech_encoder


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
    theirs = reference_speech_encoder.layers(
        weights_of(encoder), wave, frames, config.num_hidden_layers, config.num_attention_heads
    )
    whole = copy.deepcopy(encoder).double()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    with torch.inference_mode():
        ours = layers_of(whole, torch.from_numpy(wave).unsqueeze(0), frames)
    assert np.std(theirs) > 0.1, "the reference says nothing"
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "gain"), [({}, 1.0), ({"do_normalize": True}, 1.0), ({"do_normalize": False}, 0.06)]
)
def test_it_encodes_audio_at_the_level_that_it_was_trained_on(
    encoder: Any, settings: dict[str, bool], gain: float
) -> None:
    """At -23 LUFS, or at unit variance: the norm's epsilon matters in quiet channels."""
    wave, frames, config = unit(noise(30)), 30, encoder.config
    ear = copy.deepcopy(encoder)
    for name in ("do_normalize", *settings):
        vars(ear.config).pop(name, None)
    vars(ear.config).update(settings)
    with torch.no_grad():
        ear.feature_extractor.conv_layers[0].conv.weight.mul_(0.02)
    speech_samples = Samples((0.06 * wave).astype(np.float32), 0.0, 0.06)
    with torch.inference_mode():
        ours = EncodedSpeech(ear, speech_samples, frames).features(0, frames)
    theirs = reference_speech_encoder.layers(
        weights_of(ear), gain * wave, frames, config.num_hidden_layers, config.num_attention_heads
    )
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("faint", [1.0, 0.1, 0.003])
@pytest.mark.parametrize("first", [0, 150], ids=["a pause", "speech"])
def test_a_stretch_is_as_loud_as_in_the_whole(encoder: Any, faint: float, first: int) -> None:
    """A recording whose first half is the noise of the room."""
    wave = noise(200)
    wave[: 100 * PER_FRAME] *= faint
    wave = unit(wave)
    found = first_layer(encoder, wave, first)
    whole = reference_speech_encoder.first_sounds(weights_of(encoder), wave)
    wanted = whole[:, first * FIRST : first * FIRST + found.shape[1]]
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.05 * np.sqrt((whole**2).mean())


def first_layer(encoder: Any, wave: NDArray[np.float64], first: int) -> NDArray[np.float32]:
    """What the first convolution passes on of a stretch of fifty frames, (channels, places)."""
    found: list[torch.Tensor] = []
    hook = encoder.feature_extractor.conv_layers[0].register_forward_hook(
        lambda module, arguments, output: found.append(output[0])
    )
    speech = EncodedSpeech(encoder, Samples(wave.astype(np.float32), 0.0, 1.0), len(wave) // PER_FRAME, ALONE)
    with hook, torch.inference_mode():
        speech.features(first, first + 50)
    return found[0].numpy()


def test_silence_next_to_speech_stays_silent(encoder: Any) -> None:
    wave = noise(60)
    wave[: 50 * PER_FRAME] = 0
    assert not first_layer(encoder, wave, 0).any()


def test_nothing_stays_with_the_encoder(encoder: Any) -> None:
    wave = torch.from_numpy(noise(4)).float().unsqueeze(0)
    with torch.inference_mode():
        before = encoder(wave).last_hidden_state
        layers_of(encoder, wave * 0.01, 4, level=0.01)
        assert torch.equal(encoder(wave).last_hidden_state, before)


def layers_by_blocks(
    encoder: Any, wave: NDArray[np.float64], frames: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    monkeypatch.setattr(speaking, "BLOCK", round(seconds * speaking.RATE))
    with torch.inference_mode():
        return layers_of(encoder, torch.from_numpy(wave).unsqueeze(0), frames)


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.42, 1.19])
def test_convolutions_by_blocks_give_the_same(
    encoder: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave, whole = unit(noise(30, 639)), copy.deepcopy(encoder).double()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    theirs = layers_by_blocks(whole, wave, 30, 60.0, monkeypatch)
    ours = layers_by_blocks(whole, wave, 30, seconds, monkeypatch)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def samples_of(seconds: float) -> Samples:
    """It goes on, and gets louder."""
    wave = np.random.default_rng(4).normal(0, 1, round(seconds * speaking.RATE))
    wave = unit(wave * np.linspace(0.5, 1.5, len(wave)))
    return Samples(wave.astype(np.float32), float(wave.mean()), float(wave.std()))


def test_two_minutes_are_encoded_as_by_the_encoder_itself(encoder: Any) -> None:
    """What is asked for in the middle is what the encoder itself, given all samples at once, has there."""
    speech_samples, frames = samples_of(120), 120 * FPS
    arguments = (speech_samples.values - speech_samples.mean) / speech_samples.deviation
    with torch.inference_mode():
        ours = EncodedSpeech(encoder, speech_samples, frames).features(1500, 1585)
        sounds = encoder.feature_extractor(torch.from_numpy(arguments).unsqueeze(0))
        sounds = torch.nn.functional.interpolate(sounds, size=frames, mode="linear", align_corners=True)
        hidden, _ = encoder.feature_projection(sounds.transpose(1, 2))
        last = encoder.encoder(hidden).last_hidden_state[0, 1500:1585]
    torch.testing.assert_close(ours[:, -1], last, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def far_reaching() -> Any:
    """A small encoder whose convolution of places reaches as far as the true one's."""
    import transformers

    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=[8] * 7,
        num_conv_pos_embedding_groups=2,
    )
    return transformers.Wav2Vec2Model(config).eval()


def test_longer_audio_is_encoded_with_three_seconds_ahead_and_ten_behind(far_reaching: Any) -> None:
    """The features beside the seam are near those of the whole, and far with a second ahead."""
    wave = unit(noise(130 * FPS))
    speech_samples, frames = (
        Samples(wave.astype(np.float32), float(wave.mean()), float(wave.std())),
        130 * FPS,
    )
    apart = {}
    with torch.inference_mode():
        wanted = EncodedSpeech(far_reaching, speech_samples, frames, Stretches(whole_s=130)).features(
            0, frames
        )
        for ahead, stretches in ((3, DEFAULT), (1, Stretches(ahead_s=1.0))):
            found = EncodedSpeech(far_reaching, speech_samples, frames, stretches).features(0, frames)
            assert found.shape == wanted.shape
            around_the_seam = slice(stretches.used_frames - 50, stretches.used_frames + 50)
            apart[ahead] = float((1 - torch.cosine_similarity(found, wanted, dim=-1))[around_the_seam].max())
    assert apart[3] < 0.003
    assert apart[1] > 10 * apart[3]


def test_each_stretch_is_encoded_once(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks ask for overlapping frames, over and over; of long sounds, next to nothing is kept."""
    encoded: list[int] = []
    original = speaking.layers_of
    monkeypatch.setattr(
        speaking,
        "layers_of",
        lambda *arguments: encoded.append(arguments[2]) or original(*arguments),  # type: ignore[func-returns-value]
    )
    frames = 400
    speech = EncodedSpeech(encoder, samples_of(frames / FPS), frames, Stretches(4.0, 1.0, 0.6))
    with torch.inference_mode():
        parts = [speech.features(first, min(first + 21, frames)) for first in range(0, frames, 12)]
        assert len(speech._features) <= 2
        again = EncodedSpeech(encoder, samples_of(frames / FPS), frames, Stretches(4.0, 1.0, 0.6))
        together = again.features(0, frames)
    assert len(encoded) == 2 * 7, "of 60 frames each"
    assert max(encoded) <= 100
    assert all(
        torch.equal(part, together[first : first + 21])
        for first, part in zip(range(0, frames, 12), parts, strict=True)
    )
