"""xformers computes where it is chosen and runs; where it does not run, a sentence says why."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stoker.models.speed_ups import attention
from stoker.models.speed_ups.attention import AttentionUnavailable
from stoker.models.talking_video.tiny import tiny as talk
from stoker.models.text_to_image import tiny as flux_tiny
from stoker.worker import Device

CHOSEN = (attention.ENVIRONMENT, "xformers")


@pytest.fixture(scope="module")
def talk_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk") / "talk-tiny"
    talk.build(folder)
    return folder


@pytest.fixture
def dispatch() -> Iterator[Any]:
    """diffusers' choice of attention, which it also keeps for the process."""
    from diffusers.models import attention_dispatch

    yield attention_dispatch
    attention_dispatch._AttentionBackendRegistry.set_active_backend(
        attention_dispatch.AttentionBackendName.NATIVE
    )


@pytest.fixture
def stand_in(dispatch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, ...]]]:
    """Makes a package `xformers` whose attention does this, and records the shape of each query."""

    def made(computes: Callable[..., Any]) -> list[tuple[int, ...]]:
        calls: list[tuple[int, ...]] = []
        package, ops = ModuleType("xformers"), ModuleType("xformers.ops")

        def memory_efficient_attention(
            query: Any, key: Any, value: Any, attn_bias: Any = None, p: float = 0.0, scale: Any = None
        ) -> Any:
            assert attn_bias is None
            calls.append(tuple(query.shape))
            return computes(query, key, value, scale)

        ops.memory_efficient_attention = memory_efficient_attention  # type: ignore[attr-defined]
        package.ops = ops  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "xformers", package)
        monkeypatch.setitem(sys.modules, "xformers.ops", ops)
        monkeypatch.setattr(dispatch, "_CAN_USE_XFORMERS_ATTN", True)
        monkeypatch.setattr(dispatch, "xops", ops)
        return calls

    return made


def slowly(query: Any, key: Any, value: Any, scale: Any) -> Any:
    """(batch, tokens, heads, width), all products written down."""
    import torch

    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bqhd,bkhd->bhqk", query.float(), key.float()) * scale
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value.float()).to(query.dtype)


def velocity(network: Any) -> Any:
    import torch

    config, drawn = network.config, torch.Generator().manual_seed(1)

    def some(*shape: int) -> Any:
        return torch.randn(shape, generator=drawn).to(network.device, network.dtype)

    with torch.inference_mode():
        windows = some(1, 5, config.audio_window, config.audio_layers, config.audio_dim)
        text, image = some(1, 8, config.text_dim), some(1, 17, config.image_dim)
        time = torch.tensor([500.0], device=network.device)
        latents = some(1, config.in_channels, 2, 4, 4)
        return network(latents, time, text, image, network.audio_proj(windows)).float().cpu()


def test_a_name_or_nothing_is_requested() -> None:
    assert [attention.chosen(value) for value in ("", "native", " XFormers ")] == ["", "native", "xformers"]
    with pytest.raises(
        ValueError, match="STOKER_ATTENTION is 'fast'; it must be empty or one of native, cud"
    ):
        attention.chosen("fast")


def test_unless_it_is_chosen_it_is_not_called(stand_in: Any, talk_folder: Path) -> None:
    from stoker.models.talking_video import loading

    calls = stand_in(slowly)
    velocity(loading.load(talk_folder, "cpu").network)
    assert calls == []


def test_every_attention_of_the_video_model_is_xformers(
    stand_in: Any, talk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called once to see whether it runs; then of each block to itself, to image, words and voice."""
    from stoker.models.talking_video import loading

    wanted = velocity(loading.load(talk_folder, "cpu").network)
    calls = stand_in(slowly)
    monkeypatch.setenv(*CHOSEN)
    network = loading.load(talk_folder, "cpu").network
    width = network.config.attention_head_dim
    assert calls == [(1, 16, 1, width)]
    found = velocity(network)
    assert len(calls) == 1 + 4 * len(network.blocks)
    assert float((found - wanted).abs().max()) < 1e-4 * float(wanted.abs().max())


def test_every_attention_of_the_image_model_is_xformers(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.models.text_to_image.families.flux import Flux

    flux_tiny.build(tmp_path / "tiny")
    calls = stand_in(slowly)
    monkeypatch.setenv(*CHOSEN)
    pipe = Flux(tmp_path / "tiny", "cpu").pipe
    pipe(prompt="a lighthouse", height=64, width=64, num_inference_steps=2, output_type="latent")
    blocks = len(pipe.transformer.transformer_blocks) + len(pipe.transformer.single_transformer_blocks)
    assert len(calls) == 1 + 2 * blocks


def refusal(folder: Path) -> str:
    from stoker.models.talking_video import loading

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*CHOSEN)
        with pytest.raises(AttentionUnavailable) as refused:
            loading.load(folder, "cpu")
    return str(refused.value)


def test_where_it_does_not_run_the_error_has_the_reason(stand_in: Any, talk_folder: Path) -> None:
    """As on a CPU, where diffusers calls it available."""

    def nowhere(*arguments: Any) -> Any:
        raise NotImplementedError("No operator found for `memory_efficient_attention_forward`\n  …")

    stand_in(nowhere)
    assert refusal(talk_folder) == (
        "STOKER_ATTENTION is xformers, which does not run on cpu: No operator found for"
        " `memory_efficient_attention_forward`. `pip install 'stoker[gpu]'` installs it for a GPU;"
        " STOKER_ATTENTION=native needs nothing"
    )


def test_where_it_makes_no_finite_values_the_error_has_the_reason(stand_in: Any, talk_folder: Path) -> None:
    stand_in(lambda query, *arguments: query * float("nan"))
    assert "its output has values that are not finite" in refusal(talk_folder)


def test_where_it_is_not_installed_the_error_names_it(
    talk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xformers", None)
    assert "xformers, which does not run on cpu: " in refusal(talk_folder)


@pytest.mark.gpu
def test_xformers_on_a_gpu(
    gpu: Device, dispatch: Any, talk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same velocity, or where it is not installed, the sentence."""
    from stoker.models.talking_video import loading

    wanted = velocity(loading.load(talk_folder, gpu.torch_device).network)
    monkeypatch.setenv(*CHOSEN)
    if importlib.util.find_spec("xformers") is None:
        with pytest.raises(AttentionUnavailable, match="No module named 'xformers'"):
            loading.load(talk_folder, gpu.torch_device)
        return
    found = velocity(loading.load(talk_folder, gpu.torch_device).network)
    assert float((found - wanted).abs().max()) < 0.05 * float(wanted.abs().max())
