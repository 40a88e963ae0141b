"""The network's weights, from the folders that are published: Wan's own or diffusers', and the adapter's.

    base     a diffusers folder of WanTransformer3DModel, or Wan's original files: the keys decide
    adapter  InfiniteTalk's file: its keys are ours, beside base keys that it may replace

Only safetensors are read. A key that nobody knows, one that is missing and a wrong shape are each told by
name: a network with a few random layers would make a video of sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

__all__ = [
    "WrongWeights",
    "check_whole",
    "is_audio_key",
    "kept_in_float32",
    "load_into",
    "our_config",
    "our_names",
]

_PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "transformer.")
"""What repackers put before every key."""

_ORIGINAL: Final = (
    ".self_attn.",
    ".cross_attn.",
    "_embedding.0.",
    "_embedding.2.",
    "time_projection.",
    "img_emb.",
    "head.",
)
"""Parts of keys in Wan's own layout, and of none in diffusers': whichever keys a file of several has."""

TRAINING: Final = frozenset({"masked_spec_embed"})
"""What stood for sounds that the speech encoder had to guess."""


class WrongWeights(ValueError):
    """The files are not those of this network; the text names keys."""


def is_audio_key(key: str) -> bool:
    return key.startswith("audio_proj.") or ".audio_cross_attn." in key or ".norm_x." in key


def our_names(keys: Iterable[str]) -> dict[str, str]:
    """Our name of each of these parameters of the base or the adapter."""
    from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers

    names = {key: _plain(key) for key in keys}
    if not _is_original(names.values()):
        return names
    for key, plain in names.items():
        if not is_audio_key(plain):
            [names[key]] = convert_wan_transformer_to_diffusers({plain: torch.empty(0)})
    return names


def our_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The network's sizes by diffusers' names. Wan's own file has others, and leaves out what is the same in
    every Wan 2.1 that makes videos of pictures."""
    if "dim" not in config:
        return dict(config)
    same = ("eps", "ffn_dim", "freq_dim", "num_layers", "text_dim")
    return {name: config[name] for name in same if name in config} | {
        "_class_name": "WanTransformer3DModel",
        "num_attention_heads": config["num_heads"],
        "attention_head_dim": config["dim"] // config["num_heads"],
        "added_kv_proj_dim": config["dim"],
        "in_channels": config["in_dim"],
        "out_channels": config["out_dim"],
    }


def check_whole(part: str, missing: Iterable[str]) -> None:
    """Of a part that its library reads. Raises WrongWeights for what no file has: it would stay as it was
    drawn. What is for training alone is never looked at."""
    if absent := set(missing) - TRAINING:
        raise WrongWeights(f"{part}: weights do not fit: {_some('missing', absent)}")


def _is_original(keys: Iterable[str]) -> bool:
    return any(part in key for key in keys for part in _ORIGINAL)


def kept_in_float32(key: str) -> bool:
    """Whether a parameter is, by our name of it, whatever the network's dtype."""
    from stoker.models.talking_video.transformer import TalkingTransformer3DModel

    return not set(TalkingTransformer3DModel._keep_in_fp32_modules).isdisjoint(key.split("."))


def load_into(
    network: Any, files: Iterable[Path], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> None:
    """The weights of these files, base and adapter, into a network that has its own already; of a parameter
    that two files have, the later one's.

    Each tensor is turned into `dtype`, but for what is kept in float32, and put on the device as it is read:
    the base in float32, as it is published, is never in memory, and on a GPU's host next to nothing is.
    """
    from safetensors import safe_open

    expected = {key: value.shape for key, value in network.state_dict().items()}
    missing, unknown = set(expected), set()
    for file in files:
        with safe_open(file, "pt") as opened:
            names = our_names(opened.keys())
            state = {}
            for key, name in names.items():
                if name in expected:
                    _check_shape(name, opened.get_slice(key).get_shape(), expected[name], file)
                    kept = torch.float32 if kept_in_float32(name) else dtype
                    state[name] = opened.get_tensor(key).to(device, kept)
        unknown |= set(names.values()) - expected.keys()
        missing -= state.keys()
        network.load_state_dict(state, strict=False, assign=True)
    if missing or unknown:
        raise WrongWeights(f"weights do not fit: {_some('missing', missing)}{_some('unknown', unknown)}")


def _check_shape(name: str, found: Sequence[int], wanted: Sequence[int], file: Path) -> None:
    if tuple(found) != tuple(wanted):
        raise WrongWeights(f"{file.name}: {name} is {tuple(found)}; it must be {tuple(wanted)}")


def _plain(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def _some(what: str, keys: set[str]) -> str:
    if not keys:
        return ""
    return f"{len(keys)} {what} ({', '.join(sorted(keys)[:5])}{' …' if len(keys) > 5 else ''}) "
