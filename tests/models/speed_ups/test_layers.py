"""Fused projections and channels last: the same picture, within rounding."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.speed_ups.layers import channels_last, fused_projections, separate_projections
from stoker.models.speed_ups.profiles import SPEED_UPS
from stoker.models.speed_ups.speed_up import NotHere
from tests.models.speed_ups.pictures import loaded, most, picture


def test_fused_projections_draw_the_same(flux: Any, plain: Any) -> None:
    attentions = [module for module in flux.pipe.transformer.modules() if hasattr(module, "to_q")]
    how = fused_projections(loaded(flux))
    assert int(how.split()[0]) >= len(attentions)
    assert all(attention.fused_projections for attention in attentions)
    assert most(picture(flux), plain) <= SPEED_UPS["fused-projections"].bound


def test_fused_projections_need_no_more_memory_and_follow_their_parts(flux: Any) -> None:
    """As a LoRA that is added to the weights needs it."""
    import torch

    network = flux.pipe.transformer
    fused_projections(loaded(flux))
    before = picture(flux)
    for module in network.modules():
        if getattr(module, "fused_projections", False):
            for part in separate_projections(module):
                whole = {one.weight.untyped_storage().data_ptr() for one in _wholes(module)}
                assert part.weight.untyped_storage().data_ptr() in whole
    with torch.no_grad():
        network.transformer_blocks[0].attn.to_k.weight.mul_(-3.0)
    assert most(picture(flux), before) > 0


def _wholes(attention: Any) -> list[Any]:
    names = ("to_qkv", "to_kv", "to_added_qkv")
    return [getattr(attention, name) for name in names if hasattr(attention, name)]


def test_a_network_without_fused_projections_is_left_as_it_is(flux: Any) -> None:
    import torch

    class Other(torch.nn.Module):
        pass

    with pytest.raises(NotHere, match="diffusers cannot fuse the projections of Other"):
        fused_projections(loaded(flux).__class__(Other(), None, "cpu"))


def test_channels_last_draws_the_same(flux: Any, plain: Any) -> None:
    import torch

    channels_last(loaded(flux))
    weight = flux.pipe.vae.decoder.conv_in.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert most(picture(flux), plain) <= SPEED_UPS["channels-last"].bound


def test_an_autoencoder_of_videos_keeps_its_layout(flux: Any) -> None:
    import torch

    video = loaded(flux).__class__(None, torch.nn.Conv3d(1, 1, 3), "cpu")
    with pytest.raises(NotHere, match="convolutions over frames"):
        channels_last(video)
