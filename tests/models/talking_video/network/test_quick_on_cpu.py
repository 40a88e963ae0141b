"""The quicker kernels give what the library's own do, but for rounding."""

from __future__ import annotations

import copy
from typing import Any

import pytest


@pytest.fixture(scope="module")
def slow() -> Any:
    """The class with random weights, channels that differ from block to block."""
    import diffusers
    import torch

    torch.manual_seed(1)
    widths = {"base_dim": 6, "z_dim": 5, "dim_mult": [1, 2, 2, 3], "num_res_blocks": 1}
    return diffusers.AutoencoderKLWan(**widths, latents_mean=[0.0] * 5, latents_std=[1.0] * 5).eval()


@pytest.fixture(scope="module")
def quick(slow: Any) -> Any:
    from stoker.models.talking_video.network.quick_on_cpu import quicken

    return quicken(copy.deepcopy(slow))


@pytest.mark.parametrize("shape", [(1, 16, 16), (5, 24, 16), (9, 16, 40)])
def test_frames_and_latents_are_the_same(slow: Any, quick: Any, shape: tuple[int, int, int]) -> None:
    import torch

    from stoker.models.talking_video.network.frames_from_latents import decoded

    frames = torch.randn(1, 3, *shape)
    with torch.inference_mode():
        one, other = (vae.encode(frames).latent_dist.mode() for vae in (slow, quick))
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
        latents = torch.randn_like(one)
        groups = [list(decoded(vae, latents)) for vae in (slow, quick)]
    for first, second in zip(*groups, strict=True):
        torch.testing.assert_close(second, first, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "past"),
    [
        (1, 1, 0, 0),
        (3, 1, 1, 0),
        (3, 1, 1, 1),
        (3, 1, 1, 2),
        ((3, 1, 1), (2, 1, 1), 0, 0),
        ((3, 1, 1), 1, (1, 0, 0), 2),
    ],
)
def test_each_kind_of_convolution(kernel: Any, stride: Any, padding: Any, past: int) -> None:
    import torch
    from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d

    from stoker.models.talking_video.network.quick_on_cpu import quicken

    plain = WanCausalConv3d(4, 6, kernel, stride, padding)
    wrapped = quicken(torch.nn.Sequential(copy.deepcopy(plain)))[0]
    input_frames = torch.randn(2, 4, 5, 7, 6)
    before = torch.randn(2, 4, past, 7, 6) if past else None
    torch.testing.assert_close(
        wrapped(input_frames, before), plain(input_frames, before), atol=1e-5, rtol=1e-5
    )


def test_the_norms_of_zero_and_of_both_kinds() -> None:
    import torch
    from diffusers.models.autoencoders.autoencoder_kl_wan import WanRMS_norm

    from stoker.models.talking_video.network.quick_on_cpu import quicken

    for norm, shape in (
        (WanRMS_norm(4, images=False), (2, 4, 3, 5, 5)),
        (WanRMS_norm(4, channel_first=False), (2, 3, 4)),
        (WanRMS_norm(4, bias=True), (2, 4, 5, 5)),
    ):
        wrapped = quicken(torch.nn.Sequential(copy.deepcopy(norm)))[0]
        input_frames = torch.randn(shape)
        torch.testing.assert_close(wrapped(input_frames), norm(input_frames))
        assert wrapped(torch.zeros(shape)).equal(norm(torch.zeros(shape)))


def test_it_is_what_a_cpu_loads_and_nothing_else_of_it_differs(
    video_pipeline: Any, slow: Any, quick: Any
) -> None:
    from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, WanRMS_norm

    changed = [
        one for one in video_pipeline.autoencoder.modules() if isinstance(one, WanCausalConv3d | WanRMS_norm)
    ]
    assert changed
    assert not any(type(one) in (WanCausalConv3d, WanRMS_norm) for one in changed)
    assert quick.state_dict().keys() == slow.state_dict().keys()
    assert quick._cached_conv_counts == slow._cached_conv_counts
