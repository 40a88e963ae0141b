"""What is on the GPU when: FLUX.1 fits 24 and 12 GB; and each placement draws the picture."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.speed_ups import placement
from stoker.models.speed_ups.placement import GIB, DoesNotFit, Placement, Sizes, decide, needs
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from tests.models.speed_ups.pictures import flux as flux_of
from tests.models.speed_ups.pictures import loaded, most, picture


@pytest.fixture(scope="module")
def true_sizes() -> Sizes:
    """FLUX.1 without weights, in bfloat16."""
    import diffusers
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    class Pipe:
        components: dict[str, Any]

    with torch.device("meta"):
        pipe = Pipe()
        t5 = T5Config(
            d_model=4096, d_kv=64, d_ff=10240, num_heads=64, num_layers=24, feed_forward_proj="gated-gelu"
        )
        clip = CLIPTextConfig(hidden_size=768, intermediate_size=3072)
        pipe.components = {
            "transformer": diffusers.FluxTransformer2DModel(guidance_embeds=True),
            "vae": diffusers.AutoencoderKL(
                block_out_channels=(128, 256, 512, 512),
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                layers_per_block=2,
                latent_channels=16,
            ),
            "text_encoder": CLIPTextModel(clip),
            "text_encoder_2": T5EncoderModel(t5),
            "tokenizer": None,
        }
    for part in filter(None, pipe.components.values()):
        part.to(torch.bfloat16)
    found = Loaded(pipe.components["transformer"], pipe.components["vae"], "cuda", pipe)
    return placement.sizes_of(found)


def test_the_true_sizes_are_those_of_the_checkpoint(true_sizes: Sizes) -> None:
    """11.9 billion parameters of two bytes; with T5's 4.8 and the rest 33 GB."""
    assert true_sizes.network == pytest.approx(23.8e9, rel=0.01)
    assert true_sizes.network + true_sizes.encoders + true_sizes.vae == pytest.approx(33.7e9, rel=0.02)
    assert true_sizes.network_float8 == pytest.approx(true_sizes.network / 2, rel=0.01)
    assert true_sizes.no_block + 57 * true_sizes.block > true_sizes.network > 57 * true_sizes.no_block


@pytest.mark.parametrize(
    ("gib", "chosen"),
    [
        (80, Placement.RESIDENT),
        (32, Placement.IN_TURN),
        (23.5, Placement.FLOAT8),
        (16, Placement.FLOAT8),
        (11.5, Placement.BY_BLOCKS),
    ],
)
def test_flux_fits_gpus_of_24_and_12_gb(true_sizes: Sizes, gib: float, chosen: Placement) -> None:
    """A GPU of 24 GB has 23.5 GiB free when nothing else is on it, one of 12 GB 11.5."""
    assert decide(true_sizes, int(gib * GIB)) is chosen


def test_where_not_even_blocks_fit_the_numbers_are_named(true_sizes: Sizes) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 9\.\d GiB even .* block by block; it has 8\.0 GiB free"):
        decide(true_sizes, 8 * GIB)


bytes_ = st.integers(0, 2**36)


@given(st.builds(Sizes, *[bytes_] * 7), bytes_)
def test_it_is_the_first_that_fits(sizes: Sizes, free: int) -> None:
    try:
        chosen = decide(sizes, free)
    except DoesNotFit:
        assert all(needs(sizes, one) > free for one in Placement)
        return
    assert needs(sizes, chosen) <= free
    assert all(needs(sizes, one) > free for one in Placement if one < chosen)


def test_block_by_block_draws_the_same(flux: Any, plain: Any) -> None:
    """The CPU stands in for the GPU: blocks come and go, on the same device."""
    placement.place(loaded(flux), Placement.BY_BLOCKS)
    assert any(hasattr(module, "_diffusers_hook") for module in flux.pipe.transformer.modules())
    assert most(picture(flux), plain) == 0


def test_weights_in_float8_draw_nearly_the_same(flux: Any, plain: Any) -> None:
    import torch

    assert placement.planned_placement(loaded(flux)) == "weights in float8"
    kinds = {weight.dtype for weight in flux.pipe.transformer.parameters()}
    assert torch.float8_e4m3fn in kinds
    assert flux.pipe.transformer.dtype == torch.float32
    found = picture(flux)
    assert 0 < abs(found - plain).mean() < 0.1 * plain.std()


@pytest.mark.parametrize("chosen", list(Placement))
def test_the_placement_is_set_up_by_the_libraries(
    flux: Any, monkeypatch: pytest.MonkeyPatch, chosen: Placement
) -> None:
    """On a scripted GPU: which of diffusers' functions is called, and that no part is moved twice."""
    calls: list[str] = []
    pipe = type(flux.pipe)
    monkeypatch.setattr(pipe, "to", lambda self, device: calls.append(f"to {device}"))
    monkeypatch.setattr(
        pipe, "enable_model_cpu_offload", lambda self, device: calls.append(f"in turn {device}")
    )
    monkeypatch.setattr(
        pipe,
        "enable_group_offload",
        lambda self, device, **how: calls.append(f"by blocks {device} {how['use_stream']}"),
    )
    monkeypatch.setattr(type(flux.pipe.vae), "to", lambda self, device: calls.append(f"vae to {device}"))
    monkeypatch.setattr(placement, "sizes_of", lambda loaded: None)
    monkeypatch.setattr(placement, "decide", lambda sizes, free: chosen)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (24 * GIB, 24 * GIB))
    on_gpu = Loaded(flux.pipe.transformer, flux.pipe.vae, "cuda", flux.pipe)
    how = placement.planned_placement(on_gpu)
    assert (how, calls) == {
        Placement.RESIDENT: ("resident", ["to cuda"]),
        Placement.IN_TURN: ("in turn", ["in turn cuda"]),
        Placement.FLOAT8: ("float8", ["in turn cuda"]),
        Placement.BY_BLOCKS: ("by blocks", ["by blocks cuda True", "vae to cuda"]),
    }[chosen]


def test_tiles_draw_much_the_same(tiny_folder: Any) -> None:
    flux = flux_of(tiny_folder)
    whole = picture(flux, 512, 512)
    placement.vae_tiling(loaded(flux))
    assert most(picture(flux, 512, 512), whole) == 0  # one tile
    vae = flux.pipe.vae
    vae.tile_sample_min_size, vae.tile_latent_min_size = 8 * flux.pipe.vae_scale_factor, 8
    decoded = vae.tiled_decode
    calls: list[int] = []
    vae.tiled_decode = lambda *latents, **how: calls.append(1) or decoded(*latents, **how)
    assert abs(picture(flux, 512, 512) - whole).mean() < 0.5 * whole.std()
    assert calls == [1]


def test_what_has_a_plan_or_no_tiles_is_left(flux: Any) -> None:
    with pytest.raises(NotHere, match="a plan of its own"):
        placement.planned_placement(Loaded(None, None, "cpu"))
    with pytest.raises(NotHere, match="nothing is decoded in tiles"):
        placement.vae_tiling(Loaded(None, object(), "cpu"))
