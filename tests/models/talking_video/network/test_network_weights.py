"""The network's weights from each published layout, and errors that name what does not fit."""

from __future__ import annotations

import functools
import inspect
import json
import re
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

from stoker.models.talking_video import loading
from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel
from stoker.models.talking_video.network.weights import (
    WrongWeights,
    is_audio_key,
    kept_in_float32,
    load_into,
    our_config,
    our_names,
)
from stoker.models.talking_video.sampling.settings import SETTINGS

State: TypeAlias = dict[str, torch.Tensor]

ORIGINAL = {
    r"^condition_embedder\.(time|text)_embedder\.linear_1": r"\1_embedding.0",
    r"^condition_embedder\.(time|text)_embedder\.linear_2": r"\1_embedding.2",
    r"^condition_embedder\.time_proj": "time_projection.1",
    r"^condition_embedder\.image_embedder\.norm1": "img_emb.proj.0",
    r"^condition_embedder\.image_embedder\.ff\.net\.0\.proj": "img_emb.proj.1",
    r"^condition_embedder\.image_embedder\.ff\.net\.2": "img_emb.proj.3",
    r"^condition_embedder\.image_embedder\.norm2": "img_emb.proj.4",
    r"^(blocks\.\d+)\.scale_shift_table": r"\1.modulation",
    r"^(blocks\.\d+)\.norm2": r"\1.norm3",
    r"\.attn1\.to_([qkv])\.": r".self_attn.\1.",
    r"\.attn2\.to_([qkv])\.": r".cross_attn.\1.",
    r"\.attn1\.to_out\.0\.": ".self_attn.o.",
    r"\.attn2\.to_out\.0\.": ".cross_attn.o.",
    r"\.attn1\.norm": ".self_attn.norm",
    r"\.attn2\.norm_added_k": ".cross_attn.norm_k_img",
    r"\.attn2\.norm": ".cross_attn.norm",
    r"\.attn2\.add_([kv])_proj": r".cross_attn.\1_img",
    r"\.ffn\.net\.0\.proj": ".ffn.0",
    r"\.ffn\.net\.2": ".ffn.2",
    r"^scale_shift_table": "head.modulation",
    r"^proj_out": "head.head",
}
"""From our names to those of Wan's own files (Wan2.1, wan/modules/model.py)."""


def originally(state: Mapping[str, torch.Tensor]) -> State:
    named = {}
    for key, value in state.items():
        for ours, theirs in ORIGINAL.items():
            key = re.sub(ours, theirs, key)  # noqa: PLW2901
        named[key] = value
    assert len(named) == len(state)
    return named


@pytest.fixture(scope="module")
def whole(talk_tiny: Path) -> State:
    """All of talk-tiny's, each parameter unlike every other: one that is in another's place shows."""
    state = load_file(talk_tiny / "transformer" / "diffusion_pytorch_model.safetensors")
    torch.manual_seed(0)
    return {key: torch.randn(value.shape) * 0.1 for key, value in state.items()}


@pytest.fixture
def base(whole: State) -> State:
    return {key: value for key, value in whole.items() if not is_audio_key(key)}


@pytest.fixture
def adapter(whole: State) -> State:
    return {key: value for key, value in whole.items() if is_audio_key(key)}


@pytest.fixture
def published(talk_tiny: Path, tmp_path: Path) -> Callable[..., Path]:
    """A folder with a base and an adapter, of the given files."""

    def make(transformer: Mapping[str, State], others: Mapping[str, State]) -> Path:
        folder = tmp_path / "published"
        shutil.copytree(talk_tiny, folder)
        config = json.loads((talk_tiny / "transformer" / "config.json").read_text())
        shutil.rmtree(folder / "transformer")
        for name, files in (("transformer", transformer), ("adapter", others)):
            (folder / name).mkdir()
            for file, state in files.items():
                save_file({key: value.contiguous() for key, value in state.items()}, folder / name / file)
        (folder / "transformer" / "config.json").write_text(
            json.dumps(config | {"_class_name": "WanTransformer3DModel"})
        )
        return folder

    return make


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return loading._network(folder, dtype, SETTINGS["tiny"])


def parts_of(state: State) -> dict[str, State]:
    """As files are split: by blocks, and what is in no block."""
    files: dict[str, State] = {}
    for key, value in state.items():
        name = {"blocks.0": "a", "blocks.1": "b"}.get(key[:8], "c")
        files.setdefault(f"{name}.safetensors", {})[key] = value
    assert len(files) == 3
    return files


def test_the_adapter_is_named_as_it_is_published(adapter: State) -> None:
    block = r"blocks\.\d+\.(audio_cross_attn\.(q_linear|kv_linear|proj)|norm_x)\.(weight|bias)"
    projector = r"audio_proj\.(proj1|proj1_vf|proj2|proj3|norm)\.(weight|bias)"
    assert all(re.fullmatch(f"{block}|{projector}", key) for key in adapter)
    assert len(adapter) == 2 * (3 + 1) * 2 + 5 * 2


def test_the_true_sizes_are_the_published_ones() -> None:
    """16.39 and 2.49 billion parameters, from the configuration that Wan's folder holds."""
    config = {
        "added_kv_proj_dim": 5120,
        "attention_head_dim": 128,
        "cross_attn_norm": True,
        "eps": 1e-06,
        "ffn_dim": 13824,
        "freq_dim": 256,
        "image_dim": 1280,
        "in_channels": 36,
        "num_attention_heads": 40,
        "num_layers": 40,
        "out_channels": 16,
        "patch_size": [1, 2, 2],
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 1024,
        "text_dim": 4096,
    }
    with torch.device("meta"):
        network = TalkingTransformer3DModel(**config)
    audio = sum(value.numel() for key, value in network.state_dict().items() if is_audio_key(key))
    every = sum(value.numel() for value in network.parameters())
    assert round((every - audio) / 1e9, 2) == 16.39
    assert round(audio / 1e9, 3) == 2.487


def test_the_original_configuration_means_the_same() -> None:
    """Wan2.1-I2V-14B-480P/config.json: all else is what the class has by itself."""
    published = {
        "_class_name": "WanModel",
        "_diffusers_version": "0.30.0",
        "dim": 5120,
        "eps": 1e-06,
        "ffn_dim": 13824,
        "freq_dim": 256,
        "in_dim": 36,
        "model_type": "i2v",
        "num_heads": 40,
        "num_layers": 40,
        "out_dim": 16,
        "text_len": 512,
    }
    known = {name: value for name, value in our_config(published).items() if not name.startswith("_")}
    by_itself = inspect.signature(TalkingTransformer3DModel.__init__).parameters
    assert len(known) == 9
    assert known == {name: by_itself[name].default for name in known}


def test_an_original_folder_is_loaded_with_its_own_configuration(
    published: Callable[..., Path], base: State, adapter: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Wan's configuration leaves out is as in every Wan; here, as in talk-tiny."""
    folder = published({"wan.safetensors": originally(base)}, {"a.safetensors": adapter})
    file = folder / "transformer" / "config.json"
    ours = json.loads(file.read_text())
    heads = ours["num_attention_heads"]
    wan = {name: ours[name] for name in ("ffn_dim", "freq_dim", "num_layers", "text_dim")} | {
        "_class_name": "WanModel",
        "model_type": "i2v",
        "qk_norm": True,
        "num_heads": heads,
        "dim": heads * ours["attention_head_dim"],
        "in_dim": ours["in_channels"],
        "out_dim": ours["out_channels"],
    }
    file.write_text(json.dumps(wan))
    left_out = {name: ours[name] for name in ours if name.startswith(("audio_", "image_"))}
    init = TalkingTransformer3DModel.__init__
    monkeypatch.setattr(TalkingTransformer3DModel, "__init__", functools.partialmethod(init, **left_out))
    found = loaded(folder).state_dict()
    assert all(torch.equal(found[key], value) for key, value in (base | adapter).items())


def test_names_of_the_original_are_turned_into_ours(base: State) -> None:
    assert our_names(originally(base)) == dict(zip(originally(base), base, strict=True))


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "diffusion_model."])
def test_what_repackers_put_before_a_name_is_taken_off(whole: State, prefix: str) -> None:
    assert our_names(prefix + key for key in whole) == {prefix + key: key for key in whole}
    assert our_names(prefix + key for key in originally(whole)) == {
        prefix + theirs: ours for theirs, ours in zip(originally(whole), whole, strict=True)
    }


@pytest.mark.parametrize("layout", ["diffusers", "original", "original, packed"])
def test_base_and_adapter_equal_the_whole(
    published: Callable[..., Path], whole: State, base: State, adapter: State, layout: str
) -> None:
    files = parts_of(base)
    if layout != "diffusers":
        prefix = "model.diffusion_model." if layout.endswith("packed") else ""
        files = {
            name: {prefix + key: value for key, value in originally(state).items()}
            for name, state in files.items()
        }
    network = loaded(published(files, {"infinitetalk.safetensors": adapter}))
    found = network.state_dict()
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[key], whole[key]) for key in whole)


def test_nothing_is_left_on_the_meta_device_and_it_computes_the_same(
    published: Callable[..., Path], base: State, adapter: State, whole: State, video_pipeline: Any
) -> None:
    network = loaded(published(parts_of(base), {"adapter.safetensors": adapter}))
    everything = [*network.named_parameters(), *network.named_buffers()]
    assert [name for name, value in everything if value.is_meta] == []
    other = TalkingTransformer3DModel.from_config(video_pipeline.network.config).eval()
    other.load_state_dict(whole)
    torch.manual_seed(3)
    config = network.config
    arguments = (
        torch.randn(1, config.in_channels, 3, 4, 4),
        torch.tensor([700.0]),
        torch.randn(1, 512, config.text_dim),
        torch.randn(1, 17, config.image_dim),
        torch.randn(1, 3, config.audio_tokens, config.audio_dim),
    )
    with torch.inference_mode():
        # Not to the last bit: tensors that lie in a mapped file begin where they do, and sums follow suit.
        torch.testing.assert_close(network(*arguments), other(*arguments), atol=1e-6, rtol=1e-5)


def test_a_loaded_folder_talks_as_the_whole_does(published: Callable[..., Path], talk_tiny: Path) -> None:
    """Through `load`, with talk-tiny's own weights: every part is there, of one dtype where it must be."""
    state = load_file(talk_tiny / "transformer" / "diffusion_pytorch_model.safetensors")
    ours = {key: value for key, value in state.items() if is_audio_key(key)}
    wan = originally({key: value for key, value in state.items() if not is_audio_key(key)})
    video_pipeline = loading.load(published({"wan.safetensors": wan}, {"a.safetensors": ours}), "cpu")
    found = video_pipeline.network.state_dict()
    assert all(torch.equal(found[key], state[key]) for key in state)
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert not video_pipeline.network.training


def test_half_precision_keeps_what_must_stay_whole(
    published: Callable[..., Path], base: State, adapter: State
) -> None:
    network = loaded(published(parts_of(base), {"a.safetensors": adapter}), torch.bfloat16)
    dtypes = {key: value.dtype for key, value in network.state_dict().items()}
    assert dtypes["blocks.0.norm_x.weight"] == dtypes["scale_shift_table"] == torch.float32
    assert dtypes["condition_embedder.time_proj.weight"] == dtypes["proj_out.bias"] == torch.float32
    assert dtypes["blocks.0.audio_cross_attn.kv_linear.weight"] == torch.bfloat16
    assert network.dtype == torch.bfloat16
    assert network.rope.freqs_cos.dtype == torch.float32


def test_what_the_adapter_replaces_of_the_base_is_replaced(
    published: Callable[..., Path], base: State, adapter: State
) -> None:
    other = adapter | {"patch_embedding.bias": base["patch_embedding.bias"] + 1}
    network = loaded(published(parts_of(base), {"a.safetensors": other}))
    assert torch.equal(network.patch_embedding.bias, other["patch_embedding.bias"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda base, adapter: adapter.pop("audio_proj.proj2.bias"),
            r"1 missing \(audio_proj\.proj2\.bias\)",
        ),
        (lambda base, adapter: base.pop("proj_out.weight"), r"1 missing \(proj_out\.weight\)"),
        (lambda base, adapter: base.update(extra=torch.ones(1)), r"1 unknown \(extra\)"),
        (
            lambda base, adapter: adapter.update({"blocks.9.norm_x.bias": torch.ones(32)}),
            r"1 unknown \(blocks\.9\.norm_x\.bias\)",
        ),
        (
            lambda base, adapter: adapter.update({"audio_proj.norm.bias": torch.ones(3)}),
            r"a\.safetensors: audio_proj\.norm\.bias is \(3,\); it must be \(16,\)",
        ),
        (
            lambda base, adapter: [adapter.pop(key) for key in list(adapter) if "norm_x" not in key],
            r"22 missing \(audio_proj\.norm\.bias, .* …\)",
        ),
    ],
    ids=["adapter's missing", "base's missing", "unknown", "a block too many", "shape", "many missing"],
)
def test_what_does_not_fit_is_named(
    published: Callable[..., Path], base: State, adapter: State, change: Any, message: str
) -> None:
    change(base, adapter)
    with pytest.raises(WrongWeights, match=message):
        loaded(published({"b.safetensors": base}, {"a.safetensors": adapter}))


def test_an_adapter_without_audio_layers_is_refused(published: Callable[..., Path], base: State) -> None:
    with pytest.raises(WrongWeights, match=r"26 missing \(audio_proj\.norm\.bias"):
        loaded(published({"b.safetensors": base}, {"a.safetensors": base}))


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("text_encoder", "encoder.block.0.layer.0.SelfAttention.q.weight"),
        ("image_encoder", "encoder.layers.0.layer_norm2.weight"),
        ("audio_encoder", "encoder.layers.0.attention.q_proj.weight"),
        ("vae", "decoder.mid_block.attentions.0.to_qkv.weight"),
        ("transformer", "audio_proj.proj2.weight"),
    ],
)
def test_what_a_part_lacks_is_not_drawn(talk_tiny: Path, tmp_path: Path, part: str, key: str) -> None:
    """The libraries say so in a log that is turned off, and go on."""
    with pytest.raises(WrongWeights, match=rf"^{part}: weights do not fit: 1 missing \({re.escape(key)}\)"):
        loading.load(without(talk_tiny, tmp_path, part, key), "cpu")


@pytest.mark.parametrize(
    ("setting", "wanted"), [(None, True), ("{}", True), ('{"do_normalize": false}', False)]
)
def test_the_speech_encoder_normalizes_as_it_was_trained(
    talk_tiny: Path, tmp_path: Path, setting: str | None, wanted: bool
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(talk_tiny, folder)
    if setting is not None:
        (folder / "audio_encoder" / "preprocessor_config.json").write_text(setting)
    assert loading.load(folder, "cpu").speech_encoder.config.do_normalize is wanted


def test_what_is_for_training_may_be_missing(talk_tiny: Path, tmp_path: Path) -> None:
    loading.load(without(talk_tiny, tmp_path, "audio_encoder", "masked_spec_embed"), "cpu")


def without(talk_tiny: Path, tmp_path: Path, part: str, key: str) -> Path:
    folder = tmp_path / "lacking"
    shutil.copytree(talk_tiny, folder)
    [file] = (folder / part).glob("*.safetensors")
    state = load_file(file)
    del state[key]
    file.unlink()
    save_file(state, file, metadata={"format": "pt"})
    return folder


def test_one_tensor_at_a_time_is_in_the_hosts_memory(
    published: Callable[..., Path], base: State, adapter: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read, turned into its number format, and gone to the device before the next one is read."""
    read: list[weakref.ref[torch.Tensor]] = []

    class Watched:
        def __init__(self, *arguments: Any) -> None:
            self.opened = opening(*arguments)

        def __enter__(self) -> Any:
            self.file = self.opened.__enter__()
            return self

        def __exit__(self, *arguments: Any) -> None:
            self.opened.__exit__(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def get_tensor(self, key: str) -> torch.Tensor:
            assert [one for one in read if one() is not None] == []
            tensor = self.file.get_tensor(key)
            read.append(weakref.ref(tensor))
            return tensor

    opening = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", Watched)
    folder = published(parts_of(base), {"a.safetensors": adapter})
    config = json.loads((folder / "transformer" / "config.json").read_text())
    with torch.device("meta"):
        network = TalkingTransformer3DModel(**{k: v for k, v in config.items() if not k.startswith("_")})
    files = [
        file for one in ("transformer", "adapter") for file in sorted((folder / one).glob("*.safetensors"))
    ]
    load_into(network, files, torch.bfloat16, "meta")
    assert len(read) == len(base) + len(adapter)
    dtypes = {key: value.dtype for key, value in network.state_dict().items()}
    assert {key for key, dtype in dtypes.items() if dtype == torch.float32} == {
        key for key in dtypes if kept_in_float32(key)
    }
    assert set(dtypes.values()) == {torch.float32, torch.bfloat16}
