"""The networks of a pipeline of diffusers, from tensors that were read to the device already.

The library would map each file, convert it on the CPU and move it. Here a module is built without weights,
and the tensors take their places. What has no safetensors (tokenizers, schedulers), or has them under other
names, is left to the library.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stoker.models.cold_start import stage
from stoker.models.weights.reading import Reading

if TYPE_CHECKING:
    import torch

NAMES: Final = {"diffusers": "diffusion_pytorch_model.safetensors", "transformers": "model.safetensors"}
"""The file, or with `.index.json` the list of files, of each library."""


def networks(folder: Path, reading: Reading, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Returns the networks by the name of the component, each on the device."""
    index = json.loads((folder / "model_index.json").read_text())
    files = {
        name: found
        for name, about in index.items()
        if isinstance(about, list) and (found := files_of(folder, name, about[0]))
    }
    with stage("read"):
        read = reading.tensors([path for paths in files.values() for path in paths], device)
    made = {}
    for name, paths in files.items():
        tensors: dict[str, torch.Tensor] = {}
        for path in paths:
            tensors |= read.pop(path)
        library, class_name = index[name]
        kind = getattr(importlib.import_module(library), class_name)
        filled = _of_diffusers if library == "diffusers" else _of_transformers
        made[name] = filled(kind, folder / name, tensors, device, dtype).eval()
    return made


def networks_of(pipe: Any) -> list[torch.nn.Module]:
    """Returns the networks that a pipeline of diffusers holds."""
    import torch

    return [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]


def files_of(folder: Path, name: str, library: str | None) -> list[str]:
    """Returns the paths of a component's files, below the folder; empty if there are none of the library's
    names."""
    if library not in NAMES:
        return []
    single = folder / name / NAMES[library]
    listed = single.with_name(f"{single.name}.index.json")
    if listed.is_file():
        shards = set(json.loads(listed.read_text())["weight_map"].values())
        return [f"{name}/{shard}" for shard in sorted(shards)]
    return [f"{name}/{single.name}"] if single.is_file() else []


def _of_diffusers(
    kind: Any, folder: Path, tensors: dict[str, torch.Tensor], device: str, dtype: torch.dtype
) -> Any:
    import accelerate
    from diffusers.models.model_loading_utils import load_model_dict_into_meta

    with accelerate.init_empty_weights():
        module = kind.from_config(kind.load_config(str(folder), local_files_only=True))
    module._fix_state_dict_keys_on_load(tensors)
    _check(folder, set(module.state_dict()), set(tensors))
    load_model_dict_into_meta(
        module,
        tensors,
        dtype=dtype,
        keep_in_fp32_modules=module._keep_in_fp32_modules or [],
        device_map={"": device},
    )
    module.register_to_config(_name_or_path=str(folder))
    return module.to(device)


def _of_transformers(
    kind: Any, folder: Path, tensors: dict[str, torch.Tensor], device: str, dtype: torch.dtype
) -> Any:
    config = kind.config_class.from_pretrained(str(folder), local_files_only=True)
    module, info = kind.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        dtype=dtype,
        device_map={"": device},
        output_loading_info=True,
    )
    _check(folder, set(info["missing_keys"]), set())
    return module


def _check(folder: Path, expected: set[str], found: set[str]) -> None:
    """Raises ValueError: what is missing would stay empty."""
    if missing := sorted(expected - found):
        some = ", ".join(missing[:5])
        raise ValueError(f"{folder.name}: {len(missing)} weights are missing in its files ({some})")
