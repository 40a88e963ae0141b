"""The network's weights, from the folders that are published: Wan's own or diffusers', and the adapter's.

    base     a diffusers folder of WanTransformer3DModel, or Wan's original files: the keys decide
    adapter  InfiniteTalk's file: its keys are ours, beside base keys that it may replace

Only safetensors are read. A key that nobody knows, one that is missing and a wrong shape are each told by
name: a network with a few random layers would make a video of sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

__all__ = ["WrongWeights", "adapter_keys", "base_keys", "is_audio_key", "load_into", "our_names"]

_PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "transformer.")
"""What repackers put before every key."""

_ORIGINAL: Final = (".self_attn.", ".cross_attn.")
"""Parts of every block's keys in Wan's own layout, and of none in diffusers'."""


class WrongWeights(ValueError):
    """The files are not those of this network; the text names keys."""


def is_audio_key(key: str) -> bool:
    return key.startswith("audio_proj.") or ".audio_cross_attn." in key or ".norm_x." in key


def base_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Wan's weights by our names, whichever layout they have."""
    plain = {_plain(key): value for key, value in state.items()}
    if not _is_original(plain):
        return plain
    from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers

    converted: dict[str, torch.Tensor] = convert_wan_transformer_to_diffusers(plain)
    return converted


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


def _is_original(keys: Iterable[str]) -> bool:
    return any(part in key for key in keys for part in _ORIGINAL)


def adapter_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The adapter's weights by our names, and what it replaces of the base."""
    plain = {_plain(key): value for key, value in state.items()}
    ours = {key: value for key, value in plain.items() if is_audio_key(key)}
    if not ours:
        some = ", ".join(sorted(plain)[:3]) or "none at all"
        raise WrongWeights(f"the adapter holds no audio weights; its keys are: {some} …")
    return ours | base_keys({key: value for key, value in plain.items() if key not in ours})


def load_into(network: Any, files: Iterable[Path], dtype: torch.dtype | None = None) -> None:
    """The weights of these files, base and adapter in any order, into a network that has its own already.

    With `dtype`, each file is turned into it as it is read, but for what diffusers keeps in float32: the
    whole base in float32, as it is published, is never in memory.
    """
    from safetensors.torch import load_file

    expected: dict[str, torch.Tensor] = network.state_dict()
    missing, unknown = set(expected), set()
    for file in files:
        raw = load_file(file)
        audio = any(is_audio_key(_plain(key)) for key in raw)
        state = adapter_keys(raw) if audio else base_keys(raw)
        unknown |= state.keys() - expected.keys()
        missing -= state.keys()
        _check_shapes(state, expected, file)
        if dtype is not None:
            state = {key: value.to(_kept_dtype(network, key, dtype)) for key, value in state.items()}
        network.load_state_dict(state, strict=False, assign=True)
    if missing or unknown:
        raise WrongWeights(f"weights do not fit: {_some('missing', missing)}{_some('unknown', unknown)}")


def _kept_dtype(network: Any, key: str, dtype: torch.dtype) -> torch.dtype:
    parts = key.split(".")
    return torch.float32 if any(kept in parts for kept in network._keep_in_fp32_modules) else dtype


def _check_shapes(
    state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], file: Path
) -> None:
    for key in state.keys() & expected.keys():
        if state[key].shape != expected[key].shape:
            raise WrongWeights(
                f"{file.name}: {key} is {tuple(state[key].shape)}; it must be {tuple(expected[key].shape)}"
            )


def _plain(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def _some(what: str, keys: set[str]) -> str:
    if not keys:
        return ""
    return f"{len(keys)} {what} ({', '.join(sorted(keys)[:5])}{' …' if len(keys) > 5 else ''}) "
