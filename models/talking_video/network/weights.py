"""The network's weights from published files: Wan's own or diffusers', and the adapter's.

    base     a diffusers folder of WanTransformer3DModel, or Wan's original files: the keys decide
    adapter  InfiniteTalk's file: keys that the network adds to the base, and base keys that it may replace

Only safetensors are read. An unknown key, a missing one and a wrong shape are errors that name the key: with
a few random layers the network would still make a video, but a bad one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

_PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "transformer.")
"""Prefixes that repackaged files add to every key."""

_ORIGINAL: Final = (
    ".self_attn.",
    ".cross_attn.",
    "_embedding.0.",
    "_embedding.2.",
    "time_projection.",
    "img_emb.",
    "head.",
)
"""Parts of keys that only Wan's own layout has; each of several files has some of them."""

TRAINING: Final = frozenset({"masked_spec_embed"})
"""Parameters that are used in training only: the mask embedding of the speech encoder."""


class WrongWeights(ValueError):
    """The files are not for this network; the message names keys."""


def is_audio_key(key: str) -> bool:
    return key.startswith("audio_proj.") or ".audio_cross_attn." in key or ".norm_x." in key


def our_names(keys: Iterable[str]) -> dict[str, str]:
    """Returns the network's name of each of these parameters of the base or the adapter."""
    from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers

    names = {key: _plain(key) for key in keys}
    if not any(part in name for name in names.values() for part in _ORIGINAL):
        return names
    for key, plain in names.items():
        if not is_audio_key(plain):
            [names[key]] = convert_wan_transformer_to_diffusers({plain: torch.empty(0)})
    return names


def our_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the network's sizes by diffusers' names. Wan's own file has other names, and leaves out the
    sizes that are the same in every image-to-video model of Wan 2.1."""
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
    """Raises WrongWeights if a part that its library has loaded lacks parameters: these would stay random.
    Parameters for training only do not count."""
    if absent := set(missing) - TRAINING:
        raise WrongWeights(f"{part}: weights do not fit: {_some('missing', absent)}")


def kept_in_float32(key: str) -> bool:
    """Returns whether a parameter, by the network's name, is float32 whatever the network's dtype is."""
    from stoker.models.talking_video.network.transformer import TalkingTransformer3DModel

    return not set(TalkingTransformer3DModel._keep_in_fp32_modules).isdisjoint(key.split("."))


def load_into(
    network: Any, files: Iterable[Path], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> None:
    """Loads the weights of these files, base and adapter, into a network. If two files have a parameter, the
    later file's is used.

    Each tensor is converted to `dtype`, unless it is kept in float32, and moved to the device as it is read.
    So the published base in float32 is never whole in memory, and a GPU's host holds next to nothing.
    """
    from accelerate.utils import set_module_tensor_to_device
    from safetensors import safe_open

    expected = {key: value.shape for key, value in network.state_dict().items()}
    missing, unknown = set(expected), set()
    for file in files:
        with safe_open(file, "pt") as opened:
            names = our_names(opened.keys())
            for key, name in names.items():
                if name in expected:
                    _check_shape(name, opened.get_slice(key).get_shape(), expected[name], file)
                    kept = torch.float32 if kept_in_float32(name) else dtype
                    set_module_tensor_to_device(
                        network, name, device, opened.get_tensor(key), kept, clear_cache=False
                    )
        unknown |= set(names.values()) - expected.keys()
        missing -= set(names.values())
    if missing or unknown:
        raise WrongWeights(f"weights do not fit: {_some('missing', missing)}{_some('unknown', unknown)}")


def _check_shape(name: str, found: Sequence[int], expected: Sequence[int], file: Path) -> None:
    if tuple(found) != tuple(expected):
        raise WrongWeights(f"{file.name}: {name} is {tuple(found)}; it must be {tuple(expected)}")


def _plain(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def _some(what: str, keys: set[str]) -> str:
    if not keys:
        return ""
    return f"{len(keys)} {what} ({', '.join(sorted(keys)[:5])}{' …' if len(keys) > 5 else ''}) "
