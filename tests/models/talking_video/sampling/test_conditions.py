"""What a chunk is made from, held against what InfiniteTalk's authors say of each: the words, the image and
its mask, the frames that are known, the voice and its silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker.models.talking_video import pipeline
from stoker.models.talking_video.pipeline import encode_scene
from stoker.models.talking_video.sampling.chunks import Chunk
from tests.models.talking_video.network import reference
from tests.models.talking_video.spoken import spoken

HIGH, WIDE = 32, 64
MIDDLE = Chunk(1, 12, 17, 5, 12)


@pytest.fixture(scope="module")
def video_pipeline(drawn_video_pipeline: Any) -> Any:
    return drawn_video_pipeline


@pytest.fixture(scope="module")
def scene(video_pipeline: Any) -> Any:
    torch.manual_seed(2)
    return encode_scene(video_pipeline, "somebody speaks", torch.rand(3, HIGH, WIDE) * 2 - 1)


def latents_of(video_pipeline: Any, video: torch.Tensor) -> torch.Tensor:
    """The mean, not a draw, in units of the published deviation of each channel."""
    vae = video_pipeline.autoencoder
    with torch.inference_mode():
        found = vae.encode(video).latent_dist.mean
    mean, deviation = (
        torch.tensor(values).view(1, -1, 1, 1, 1)
        for values in (vae.config.latents_mean, vae.config.latents_std)
    )
    return (found - mean) / deviation


@pytest.mark.parametrize("frames", [1, 5, 17])
def test_the_image_is_marked_and_followed_by_grey(video_pipeline: Any, scene: Any, frames: int) -> None:
    """The mask is one for the first frame: which stands for four, as the others of a latent do."""
    with torch.inference_mode():
        still = pipeline._still(video_pipeline, scene, frames)
    marks = torch.tensor([1.0] * 4 + [0.0] * (frames - 1)).reshape(-1, 4).T
    assert torch.equal(still[0, :4], marks[:, :, None, None].expand(-1, -1, HIGH // 8, WIDE // 8))
    video = torch.cat([scene.frame[None, :, None], torch.zeros(1, 3, frames - 1, HIGH, WIDE)], dim=2)
    torch.testing.assert_close(still[:, 4:], latents_of(video_pipeline, video), atol=1e-5, rtol=1e-5)


def test_known_is_the_image_and_then_the_last_frames(video_pipeline: Any, scene: Any) -> None:
    motion = torch.rand(5, 3, HIGH, WIDE) * 2 - 1
    with torch.inference_mode():
        first, later = (
            pipeline._known(video_pipeline, scene, None),
            pipeline._known(video_pipeline, scene, motion),
        )
    assert (first.shape[2], later.shape[2]) == (1, 2)
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(first, latents_of(video_pipeline, scene.frame[None, :, None]), **close)
    torch.testing.assert_close(later, latents_of(video_pipeline, motion.transpose(0, 1)[None]), **close)


def test_audio_and_silence_are_projected(video_pipeline: Any) -> None:
    """Without audio the network gets what silence projects to, and not an empty set of tokens."""
    speech, network = spoken(video_pipeline, 25), video_pipeline.network
    speech_tokens, silence = pipeline.audio_tokens(video_pipeline, speech, MIDDLE)
    config = network.config
    windows = reference.windows(
        speech.values.double().numpy(), MIDDLE.first, MIDDLE.frames, config.audio_window
    )
    weights = {name: value.double().numpy() for name, value in network.audio_proj.state_dict().items()}
    for ours, expected in ((speech_tokens, windows), (silence, np.zeros_like(windows))):
        theirs = reference.projected(weights, expected, config.audio_dim)
        assert np.std(theirs) > 0.1
        np.testing.assert_allclose(ours[0].numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize("text", ["", "a", "somebody speaks to the camera"])
def test_tokens_are_those_of_the_text_alone_and_zeros_after_it(video_pipeline: Any, text: str) -> None:
    ids = video_pipeline.tokenizer([text], add_special_tokens=True, return_tensors="pt").input_ids
    with torch.inference_mode():
        alone = video_pipeline.text_encoder(ids).last_hidden_state
        [encoded] = pipeline.encode_prompts(video_pipeline, [text])
    assert encoded.shape[1] == reference.TEXT_TOKENS
    torch.testing.assert_close(encoded[:, : ids.shape[1]], alone, atol=1e-5, rtol=1e-5)
    assert not encoded[:, ids.shape[1] :].any()


def test_the_whole_image_is_looked_at_and_the_last_layer_left_out(video_pipeline: Any) -> None:
    """Squeezed, for both edges are seen; with the mean and deviation of each colour of CLIP's images."""
    colours = torch.tensor([-1.0, 0.0, 0.5])
    image = colours.view(3, 1, 1).repeat(1, HIGH, WIDE)
    image[:, :, :8], image[:, :, -8:] = -1.0, 1.0
    encoder, recorded = video_pipeline.image_encoder, dict[str, Any]()
    layers = next(part for part in encoder.modules() if isinstance(part, torch.nn.ModuleList))
    watching = [
        encoder.register_forward_pre_hook(
            lambda module, expected, named: recorded.update(pixels=(*expected, *named.values())[0]),
            with_kwargs=True,
        ),
        layers[-2].register_forward_hook(lambda module, expected, output: recorded.update(layer=output)),
    ]
    tokens = pipeline.image_tokens(video_pipeline, image)
    for hook in watching:
        hook.remove()
    layer = recorded["layer"][0] if isinstance(recorded["layer"], tuple) else recorded["layer"]
    assert torch.equal(tokens, layer)
    pixels = recorded["pixels"][0]
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])
    middle, side = pixels.shape[1] // 2, pixels.shape[2] - 1
    for column, values in ((0, torch.zeros(3)), (middle, colours / 2 + 0.5), (side, torch.ones(3))):
        torch.testing.assert_close(
            pixels[:, middle, column], (values - mean) / deviation, atol=0.02, rtol=0.02
        )
