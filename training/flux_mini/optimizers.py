"""The optimizers of the training, on the device and in the precision that it runs in."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

DEVICE: Final = "cuda" if torch.cuda.is_available() else "cpu"


def quicker() -> torch.autocast:
    """Products in bfloat16, where that is quicker: a CPU that only imitates it takes three times as long."""
    is_quick = DEVICE == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast(DEVICE, torch.bfloat16, enabled=is_quick)


class Optimizers:
    """Muon for matrices and filters, AdamW for the rest: embeddings, biases, norms, and the first and the
    last layers, whose names contain one of `edges`."""

    def __init__(self, model: nn.Module, rate: float, edges: tuple[str, ...]) -> None:
        named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        inner = [
            value for name, value in named if value.ndim >= 2 and not any(edge in name for edge in edges)
        ]
        chosen = {id(value) for value in inner}
        rest = [value for _, value in named if id(value) not in chosen]
        self._filters = [(value, nn.Parameter(value.detach().flatten(1))) for value in inner]
        self._muon = torch.optim.Muon(
            [flat for _, flat in self._filters],
            lr=rate,
            weight_decay=0.0,
            adjust_lr_fn="match_rms_adamw",
            ns_steps=3,
        )
        self._adam = torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._rate = rate
        self._rest = rest

    def step(self, share: float) -> None:
        """Takes one step at this share of the learning rate. Muon takes no notice of how large a
        gradient is."""
        nn.utils.clip_grad_norm_(self._rest, 1.0)
        for optimizer in (self._muon, self._adam):
            optimizer.param_groups[0]["lr"] = self._rate * share
        for value, flat in self._filters:
            flat.grad = None if value.grad is None else value.grad.flatten(1)
        self._muon.step()  # type: ignore[no-untyped-call]
        self._adam.step()
        for value in (*self._rest, *(value for value, _ in self._filters)):
            value.grad = None

    def state(self) -> dict[str, object]:
        return {"muon": self._muon.state_dict(), "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, object]) -> None:
        self._muon.load_state_dict(state["muon"])  # type: ignore[arg-type]
        self._adam.load_state_dict(state["adam"])  # type: ignore[arg-type]
