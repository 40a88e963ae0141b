"""A LoRA is in the weights after loading, whichever names it has; nothing of it is dropped unsaid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "in_channels": 12,
    "out_channels": 4,
    "text_dim": 8,
    "freq_dim": 8,
    "ffn_dim": 24,
    "num_layers": 2,
    "image_dim": 8,
    "added_kv_proj_dim": 16,
    "audio_dim": 8,
    "audio_layers": 1,
    "audio_tokens": 2,
    "audio_hidden": 8,
}

THEIRS = {
    "blocks.1.self_attn.q": "blocks.1.attn1.to_q",
    "blocks.0.cross_attn.o": "blocks.0.attn2.to_out.0",
    "blocks.0.cross_attn.k_img": "blocks.0.attn2.add_k_proj",
    "blocks.1.ffn.2": "blocks.1.ffn.net.2",
    "time_projection.1": "condition_embedder.time_proj",
    "img_emb.proj.1": "condition_embedder.image_embedder.ff.net.0.proj",
    "head.head": "proj_out",
}
"""Modules by Wan's names, and by ours."""


@pytest.fixture
def network() -> Any:
    import torch

    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel

    torch.manual_seed(1)
    return TalkingTransformer3DModel(**CONFIG).eval()


@pytest.fixture
def made(network: Any) -> Callable[..., dict[str, Any]]:
    """A LoRA of rank 2 for these modules, as a trainer writes it."""
    import torch

    weights = network.state_dict()

    def make(names: dict[str, str], down: str = "lora_down", up: str = "lora_up") -> dict[str, Any]:
        state = {}
        for theirs, ours in names.items():
            wide, narrow = weights[f"{ours}.weight"].shape
            state[f"{theirs}.{down}.weight"] = torch.randn(2, narrow)
            state[f"{theirs}.{up}.weight"] = torch.randn(wide, 2)
        return state

    return make


def copied(network: Any) -> dict[str, Any]:
    return {key: value.clone() for key, value in network.state_dict().items()}


def changed(network: Any, before: dict[str, Any]) -> set[str]:
    return {key for key, value in network.state_dict().items() if not value.equal(before[key])}


@pytest.mark.parametrize("prefix", ["diffusion_model.", ""])
def test_every_weight_is_itself_and_the_product(
    network: Any, made: Callable[..., dict[str, Any]], prefix: str
) -> None:
    import torch

    from stoker.models.talking_video.network.lora import fuse

    before = copied(network)
    state = {prefix + key: value for key, value in made(THEIRS).items()}
    fuse(network, state, 0.5, "lora.safetensors")
    assert changed(network, before) == {f"{ours}.weight" for ours in THEIRS.values()}
    after = network.state_dict()
    for theirs, ours in THEIRS.items():
        up = state[f"{prefix}{theirs}.lora_up.weight"].double()
        down = state[f"{prefix}{theirs}.lora_down.weight"].double()
        expected = before[f"{ours}.weight"].double() + 0.5 * (up @ down)
        torch.testing.assert_close(after[f"{ours}.weight"].double(), expected, atol=1e-5, rtol=1e-5)


def test_in_diffusers_names_it_is_the_same(network: Any, made: Callable[..., dict[str, Any]]) -> None:
    from stoker.models.talking_video.network.lora import fuse

    before = copied(network)
    theirs = made(THEIRS)
    fuse(network, theirs, 1.0, "lora")
    after = copied(network)
    network.load_state_dict(before)
    ours = {}
    for key, value in theirs.items():
        module, _, leaf = key.partition(".lora_")
        leaf = {"down.weight": "A.weight", "up.weight": "B.weight"}[leaf]
        ours[f"transformer.{THEIRS[module]}.lora_{leaf}"] = value
    fuse(network, ours, 1.0, "lora")
    assert changed(network, after) == set()


def test_alpha_over_rank_scales_the_product_alone(network: Any, made: Callable[..., dict[str, Any]]) -> None:
    import torch

    from stoker.models.talking_video.network.lora import fuse

    before = copied(network)
    name, ours = "blocks.1.self_attn.q", THEIRS["blocks.1.self_attn.q"]
    state = made({name: ours})
    product = state[f"{name}.lora_up.weight"] @ state[f"{name}.lora_down.weight"]
    state |= {f"{name}.alpha": torch.tensor(1.0), f"{name}.diff_b": torch.ones(16)}
    state |= {"blocks.0.norm3.diff": torch.full((16,), 2.0)}
    fuse(network, state, 0.5, "lora")
    after = network.state_dict()
    torch.testing.assert_close(after[f"{ours}.weight"], before[f"{ours}.weight"] + 0.25 * product)
    torch.testing.assert_close(after[f"{ours}.bias"], before[f"{ours}.bias"] + 0.5)
    torch.testing.assert_close(after["blocks.0.norm2.weight"], before["blocks.0.norm2.weight"] + 1.0)


def test_modulation_is_changed_as_distilled_loras_of_wan_change_it(
    network: Any, made: Callable[..., dict[str, Any]]
) -> None:
    import torch

    from stoker.models.talking_video.network.lora import fuse

    before = copied(network)
    state = made({"blocks.1.self_attn.q": THEIRS["blocks.1.self_attn.q"]})
    state |= {"blocks.1.diff_m": torch.ones(1, 6, 16), "head.diff_m": torch.full((1, 2, 16), 3.0)}
    fuse(network, {f"diffusion_model.{key}": value for key, value in state.items()}, 0.5, "lora")
    after = network.state_dict()
    for key, more in (("blocks.1.scale_shift_table", 0.5), ("scale_shift_table", 1.5)):
        torch.testing.assert_close(after[key], before[key] + more)
    assert len(changed(network, before)) == 3


def test_one_parameter_is_computed_at_a_time(network: Any, made: Callable[..., dict[str, Any]]) -> None:
    """All that is added, at once, would be as large as the network in float32."""
    import gc
    import weakref

    from stoker.models.talking_video.network import lora

    alive: list[weakref.ref[Any]] = []
    most = 0

    def watched(change: Any, weight: Any) -> Any:
        nonlocal most
        delta = computed(change, weight)
        alive.append(weakref.ref(delta))
        gc.collect()
        most = max(most, sum(one() is not None for one in alive))
        return delta

    computed = lora._delta
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lora, "_delta", watched)
        lora.fuse(network, made(THEIRS), 1.0, "lora")
    assert (len(alive), most) == (len(THEIRS), 1)


def test_what_it_changes_of_the_velocity_follows_the_strength(
    network: Any, made: Callable[..., dict[str, Any]]
) -> None:
    """Zero is no LoRA at all; and the network is the same object with the same parameters."""
    from stoker.models.talking_video.network.lora import fuse

    before, parameters = copied(network), dict(network.named_parameters())
    fuse(network, made(THEIRS), 0.0, "lora")
    assert changed(network, before) == set()
    assert all(value is parameters[key] for key, value in network.named_parameters())


class TestRefused:
    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ("blocks.7.self_attn.q.lora_down.weight", "blocks.7.self_attn.q.lora_down.weight"),
            ("blocks.0.self_attn.q.dora_scale", "blocks.0.self_attn.q.dora_scale"),
            ("text_model.layers.0.q_proj.lora_down.weight", "text_model.layers.0.q_proj"),
        ],
    )
    def test_a_key_that_is_not_known_by_name(
        self, network: Any, made: Callable[..., dict[str, Any]], key: str, message: str
    ) -> None:
        import torch

        from stoker.models.talking_video.network.lora import fuse
        from stoker.models.talking_video.network.weights import WrongWeights

        before = copied(network)
        with pytest.raises(WrongWeights, match="1 keys are of no LoRA of this network") as caught:
            fuse(network, made(THEIRS) | {key: torch.zeros(2, 16)}, 1.0, "lora.safetensors")
        assert message in str(caught.value)
        assert changed(network, before) == set()

    def test_a_half_and_a_wrong_shape(self, network: Any, made: Callable[..., dict[str, Any]]) -> None:
        import torch

        from stoker.models.talking_video.network.lora import fuse
        from stoker.models.talking_video.network.weights import WrongWeights

        state = made({"head.head": "proj_out", "blocks.1.self_attn.q": "blocks.1.attn1.to_q"})
        half = {key: value for key, value in state.items() if key != "head.head.lora_up.weight"}
        with pytest.raises(WrongWeights, match=r"proj_out\.weight is changed by down without the other half"):
            fuse(network, half, 1.0, "lora")
        lonely = {"blocks.0.self_attn.q.alpha": torch.tensor(2.0)}
        with pytest.raises(WrongWeights, match="is changed by alpha without the other half"):
            fuse(network, lonely, 1.0, "lora")
        wide = state | {"head.head.lora_up.weight": torch.zeros(17, 2)}
        with pytest.raises(
            WrongWeights, match=r"proj_out\.weight is changed by \(17, 16\); it is \(16, 16\)"
        ):
            fuse(network, wide, 1.0, "lora")
        before = copied(network)
        uneven = state | {"head.head.lora_up.weight": torch.zeros(16, 3)}
        with pytest.raises(WrongWeights, match=r"change proj_out\.weight have the ranks 3 and 2"):
            fuse(network, uneven, 1.0, "lora")
        assert changed(network, before) == set()

    def test_a_file_without_any(self, network: Any, tmp_path: Path) -> None:
        from safetensors.torch import save_file

        from stoker.models.talking_video.network.lora import fuse_file
        from stoker.models.talking_video.network.weights import WrongWeights

        save_file({}, tmp_path / "lora.safetensors")
        with pytest.raises(WrongWeights, match=r"lora\.safetensors: 0 keys .* none at all"):
            fuse_file(network, tmp_path / "lora.safetensors", 1.0)
