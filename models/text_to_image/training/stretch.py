"""One stretch of training: optimizers, an average of the weights, a checkpoint to go on from.

A run is made of stretches of some minutes. The learning rate is constant until the last one, which lowers it
to zero, so nobody has to know in advance how long the run will take.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
AVERAGE = 0.99
"""What the average of the weights keeps of itself at each step."""


class Optimizers:
    """Muon for matrices and filters, AdamW for the rest: embeddings, biases, norms, and the first and the
    last layers, whose names contain one of `edges`."""

    def __init__(self, model: nn.Module, rate: float, edges: tuple[str, ...], decay: float = 0.0) -> None:
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
            weight_decay=decay,
            adjust_lr_fn="match_rms_adamw",
            ns_steps=3,
        )
        self._adam = torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._rate = rate
        self._rest = rest

    def step(self, share: float) -> None:
        """One step at this share of the learning rate. Muon takes no notice of how large a gradient is."""
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


M = TypeVar("M", bound=nn.Module)


@dataclass(slots=True)
class Stretch(Generic[M]):
    """`minutes`: how long it runs. `finish`: whether it lowers the learning rate to zero."""

    model: M
    optimizers: Optimizers
    checkpoint: Path
    minutes: float
    finish: bool
    log_every: int = 100

    def run(self, loss_of: Callable[[int], torch.Tensor], report: Callable[[int, M], str]) -> M:
        """Trains, and returns the model with the average of its weights. `loss_of` gets the number of the
        step; `report` says more for the log, from the averaged model."""
        average, step = copy.deepcopy(self.model).requires_grad_(False), 0
        if self.checkpoint.exists():
            found = torch.load(self.checkpoint, weights_only=True, map_location=DEVICE)
            self.model.load_state_dict(found["model"])
            average.load_state_dict(found["average"])
            if found.get("optimizers"):
                self.optimizers.restore(found["optimizers"])
            step = int(found["step"])
        began, total = time.monotonic(), 0.0
        first = step
        pairs = zip(average.state_dict().values(), self.model.state_dict().values(), strict=True)
        old, new = zip(*((old, new) for old, new in pairs if old.dtype.is_floating_point), strict=True)
        while (done := (time.monotonic() - began) / (60 * self.minutes)) < 1:
            loss = loss_of(step)
            loss.backward()  # type: ignore[no-untyped-call]
            warm = min(1.0, (step + 1) / 100)
            self.optimizers.step(warm * (1 - done if self.finish else 1.0))
            keep = min(AVERAGE, (1 + step) / (10 + step))
            torch._foreach_lerp_(old, new, 1 - keep)
            step, total = step + 1, total + loss.item()
            if step % self.log_every == 0:
                rate = (step - first) / (time.monotonic() - began)
                loss_now, more = total / self.log_every, report(step, average)
                print(f"step {step}: loss {loss_now:.4f}, {rate:.2f} steps/s {more}", flush=True)
                total = 0.0
            if step % 1000 == 0:
                self.save(step, average)
        self.save(step, average)
        return average

    def save(self, step: int, average: M) -> None:
        state = {
            "model": self.model.state_dict(),
            "average": average.state_dict(),
            "optimizers": self.optimizers.state(),
            "step": step,
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)
