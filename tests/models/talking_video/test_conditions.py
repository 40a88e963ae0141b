"""What a chunk is made from, held against what InfiniteTalk's authors say of each: the words, the picture and
its mask, the frames that are known, the voice and its silence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import reference
from spoken import spoken

from stoker.models.talking_video import pipeline
from stoker.models.talking_video.chunks import Chunk
from stoker.models.talking_video.pipeline import see

HIGH, WIDE = 32, 64
MIDDLE = Chunk(1, 12, 17, 5, 12)


@pytest.fixture(scope="module")
def talker(drawn_talker: Any) -> Any:
    return drawn_talker


@pytest.fixture(scope="module")
def scene(talker: Any) -> Any:
    torch.manual_seed(2)
    return see(talker, "somebody speaks", torch.rand(3, HIGH, WIDE) * 2 - 1)


def latents_of(talker: Any, video: torch.Tensor) -> torch.Tensor:
    """The mean, not a draw, in units of the published deviation of each channel."""
    vae = talker.autoencoder
    with torch.inference_mode():
        found = vae.encode(video).latent_dist.mean
    mean, deviation = (
        torch.tensor(values).view(1, -1, 1, 1, 1)
        for values in (vae.config.latents_mean, vae.config.latents_std)
    )
    return (found - mean) / deviation


@pytest.mark.parametrize("frames", [1, 5, 17])
def test_the_picture_is_marked_and_followed_by_grey(talker: Any, scene: Any, frames: int) -> None:
    """The mask is one for the first frame: which stands for four, as the others of a latent do."""
    with torch.inference_mode():
        still = pipeline._still(talker, scene, frames)
    marks = torch.tensor([1.0] * 4 + [0.0] * (frames - 1)).reshape(-1, 4).T
    assert torch.equal(still[0, :4], marks[:, :, None, None].expand(-1, -1, HIGH // 8, WIDE // 8))
    video = torch.cat([scene.frame[None, :, None], torch.zeros(1, 3, frames - 1, HIGH, WIDE)], dim=2)
    torch.testing.assert_close(still[:, 4:], latents_of(talker, video), atol=1e-5, rtol=1e-5)


def test_known_is_the_picture_and_then_the_last_frames(talker: Any, scene: Any) -> None:
    motion = torch.rand(5, 3, HIGH, WIDE) * 2 - 1
    with torch.inference_mode():
        first, later = pipeline._known(talker, scene, None), pipeline._known(talker, scene, motion)
    assert (first.shape[2], later.shape[2]) == (1, 2)
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(first, latents_of(talker, scene.frame[None, :, None]), **close)
    torch.testing.assert_close(later, latents_of(talker, motion.transpose(0, 1)[None]), **close)


def test_the_voice_and_its_silence_are_projected(talker: Any) -> None:
    """Without a voice the network is told what no sound projects to, and not that there are no tokens."""
    speech, network = spoken(talker, 25), talker.network
    heard, silence = pipeline.voice_of(talker, speech, MIDDLE)
    config = network.config
    windows = reference.windows(
        speech.values.double().numpy(), MIDDLE.first, MIDDLE.frames, config.audio_window
    )
    weights = {name: value.double().numpy() for name, value in network.audio_proj.state_dict().items()}
    for ours, given in ((heard, windows), (silence, np.zeros_like(windows))):
        theirs = reference.projected(weights, given, config.audio_dim)
        assert np.std(theirs) > 0.1
        np.testing.assert_allclose(ours[0].numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize("text", ["", "a", "somebody speaks to the camera"])
def test_words_are_those_of_the_text_alone_and_zeros_after_it(talker: Any, text: str) -> None:
    ids = talker.tokenizer([text], add_special_tokens=True, return_tensors="pt").input_ids
    with torch.inference_mode():
        alone = talker.text_encoder(ids).last_hidden_state
        [words] = pipeline.words_of(talker, [text])
    assert words.shape[1] == reference.TEXT_TOKENS
    torch.testing.assert_close(words[:, : ids.shape[1]], alone, atol=1e-5, rtol=1e-5)
    assert not words[:, ids.shape[1] :].any()


def test_the_whole_picture_is_looked_at_and_the_last_layer_left_out(talker: Any) -> None:
    """Squeezed, for both edges are seen; with the mean and deviation of each colour of CLIP's pictures."""
    colours = torch.tensor([-1.0, 0.0, 0.5])
    picture = colours.view(3, 1, 1).repeat(1, HIGH, WIDE)
    picture[:, :, :8], picture[:, :, -8:] = -1.0, 1.0
    encoder, seen = talker.picture_encoder, dict[str, Any]()
    layers = next(part for part in encoder.modules() if isinstance(part, torch.nn.ModuleList))
    watching = [
        encoder.register_forward_pre_hook(
            lambda module, given, named: seen.update(pixels=(*given, *named.values())[0]), with_kwargs=True
        ),
        layers[-2].register_forward_hook(lambda module, given, output: seen.update(layer=output)),
    ]
    tokens = pipeline.picture_tokens(talker, picture)
    for hook in watching:
        hook.remove()
    layer = seen["layer"][0] if isinstance(seen["layer"], tuple) else seen["layer"]
    assert torch.equal(tokens, layer)
    pixels = seen["pixels"][0]
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])
    middle, side = pixels.shape[1] // 2, pixels.shape[2] - 1
    for place, values in ((0, torch.zeros(3)), (middle, colours / 2 + 0.5), (side, torch.ones(3))):
        torch.testing.assert_close(
            pixels[:, middle, place], (values - mean) / deviation, atol=0.02, rtol=0.02
        )
