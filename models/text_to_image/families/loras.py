"""LoRAs: loaded once, kept apart from the network's weights, and switched by their scales.

    none requested   the adapters are disabled: the network computes exactly what it does without them
    some requested   all are active, each times its scale; the scale of one that is not requested is 0

`set_adapters` of diffusers writes a scale as a plain number and changes the list of active adapters; a
compiled network would be compiled again for each. Here a scale is a tensor whose value changes, so that a
compiled network has two variants, with and without LoRAs. The weights that the pipeline itself has are never
changed. The library freezes them when it loads a LoRA; they are unfrozen, since torch multiplies a batch by a
frozen matrix in another order, so that an image without LoRAs would depend on those that its worker holds.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.models.interface import Lora
from stoker.models.text_to_image.families.networks import networks_of

if TYPE_CHECKING:
    import torch


class Loras:
    """The LoRAs of one pipeline of diffusers, none of which is requested at first."""

    def __init__(self, pipe: Any, folders: Mapping[str, Path]) -> None:
        """Loads the LoRA of each folder, from its one file of safetensors. Raises ValueError for one that is
        not for this pipeline."""
        self._pipe = pipe
        self._requested: tuple[Lora, ...] = ()
        adapters = {name: f"lora_{number}" for number, name in enumerate(folders)}
        trainable = [
            weight for part in networks_of(pipe) for weight in part.parameters() if weight.requires_grad
        ]
        for name, folder in folders.items():
            _load(pipe, name, folder, adapters[name])
        for weight in trainable:
            weight.requires_grad_(True)
        if adapters:
            pipe.set_adapters(list(adapters.values()))
            pipe.disable_lora()
        self._scales = {name: _scales(pipe, adapter) for name, adapter in adapters.items()}

    @property
    def any(self) -> Lora | None:
        """Returns a LoRA, to try a network with LoRAs; None if there is none."""
        return next((Lora(name, 1.0) for name in self._scales), None)

    def request(self, loras: tuple[Lora, ...]) -> bool:
        """Applies these LoRAs to the next image. Returns whether the last image was made with others."""
        if loras == self._requested:
            return False
        scales = {lora.name: lora.scale for lora in loras}
        for name, tensors in self._scales.items():
            for tensor, full in tensors:
                tensor.fill_(full * scales.get(name, 0.0))
        if bool(loras) != bool(self._requested):
            (self._pipe.enable_lora if loras else self._pipe.disable_lora)()
        self._requested = loras
        return True


def _load(pipe: Any, name: str, folder: Path, adapter: str) -> None:
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(files) != 1:
        raise ValueError(
            f"the LoRA {name} must be one file of safetensors; it has {', '.join(files) or 'none'}"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")  # of the LoRA before it
        pipe.load_lora_weights(str(folder), weight_name=files[0], adapter_name=adapter, local_files_only=True)
    if not any(adapter in there for there in pipe.get_list_adapters().values()):
        raise ValueError(
            f"the LoRA {name} has no weights for {type(pipe).__name__}: it is for another pipeline"
        )


def _scales(pipe: Any, adapter: str) -> list[tuple[torch.Tensor, float]]:
    """Makes each scale of the adapter a tensor. Returns the tensors, each with its value for a scale of 1."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    found = []
    for layer in (module for part in networks_of(pipe) for module in part.modules()):
        scaling = getattr(layer, "scaling", {}) if isinstance(layer, BaseTunerLayer) else {}
        if adapter in scaling:
            full = float(scaling[adapter])
            scaling[adapter] = torch.zeros((), device=next(layer.parameters()).device)
            found.append((scaling[adapter], full))
    return found
