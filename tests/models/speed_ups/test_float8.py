"""Products in float8: where they are used, and why not where they are not. torchao is scripted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from stoker.models.speed_ups import profiles
from stoker.models.speed_ups.float8 import float8_products
from stoker.models.speed_ups.layers import fused_projections
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from tests.models.speed_ups.pictures import loaded


@pytest.fixture
def gpu(flux: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], Loaded]:
    """A GPU of this compute capability, as far as one is asked for it."""

    def made(capability: tuple[int, int]) -> Loaded:
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
        return Loaded(flux.pipe.transformer, flux.pipe.vae, "cuda", flux.pipe)

    return made


@pytest.fixture
def torchao(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layers that it was asked to change."""
    names: list[str] = []
    package, quantization = ModuleType("torchao"), ModuleType("torchao.quantization")

    def quantize_(network: Any, config: Any, filter_fn: Callable[[Any, str], bool]) -> None:
        assert config == "by rows"
        names.extend(name for name, module in network.named_modules() if filter_fn(module, name))

    quantization.PerRow = lambda: "rows"  # type: ignore[attr-defined]
    quantization.Float8DynamicActivationFloat8WeightConfig = (  # type: ignore[attr-defined]
        lambda granularity: f"by {granularity}"
    )
    quantization.quantize_ = quantize_  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchao", package)
    monkeypatch.setitem(sys.modules, "torchao.quantization", quantization)
    return names


def test_the_linear_layers_of_the_blocks_are_changed_and_no_others(
    gpu: Callable[[tuple[int, int]], Loaded], torchao: list[str]
) -> None:
    how = float8_products(gpu((9, 0)))
    assert how == f"{len(torchao)} layers"
    assert "transformer_blocks.0.attn.to_q" in torchao
    assert all("transformer_blocks." in name for name in torchao)


def test_of_fused_projections_only_the_whole_is_changed(
    gpu: Callable[[tuple[int, int]], Loaded], torchao: list[str]
) -> None:
    on_gpu = gpu((8, 9))
    fused_projections(on_gpu)
    float8_products(on_gpu)
    ends = {name.rpartition(".")[2] for name in torchao}
    assert "to_qkv" in ends
    assert not ends & {"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"}


def test_older_gpus_and_cpus_say_what_they_lack(flux: Any, gpu: Callable[[tuple[int, int]], Loaded]) -> None:
    with pytest.raises(NotHere, match=r"needs compute capability 8\.9; this device has 8\.6"):
        float8_products(gpu((8, 6)))
    with pytest.raises(NotHere, match="this device is a CPU"):
        float8_products(loaded(flux))


def test_without_torchao_its_error_is_the_reason(
    gpu: Callable[[tuple[int, int]], Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(NotHere, match="torchao cannot be imported"):
        float8_products(gpu((9, 0)))


def test_blocks_without_a_product_for_it_are_left_out_with_the_reason(
    gpu: Callable[[tuple[int, int]], Loaded], torchao: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = gpu((9, 0))
    monkeypatch.setattr(type(on_gpu.network), "_repeated_blocks", ["BlockOfAnotherNetwork"])
    found = profiles.apply(["float8-products"], on_gpu)
    reason = "the repeated blocks of FluxTransformer2DModel have no product for it"
    assert (found.done, found.left_out, torchao) == ({}, {"float8-products": reason}, [])
    assert profiles.without(found.left_out) == f", without float8-products ({reason})"
