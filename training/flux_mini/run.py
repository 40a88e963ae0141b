"""The training of one network: steps with a progress bar, an average of the weights, checkpoints to go on
from.

A step's chance depends on the seed and its number only, so a training that was interrupted ends with the same
weights as one that was not.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

import torch
from torch import nn
from tqdm import tqdm

from training.flux_mini.optimizers import DEVICE, Optimizers
from training.flux_mini.recipe import Schedule

AVERAGE: Final = 0.99
"""The part that the average of the weights keeps of itself at each step."""

M = TypeVar("M", bound=nn.Module)


@dataclass(slots=True)
class Run(Generic[M]):
    """A training under way. `average` is what is trained in the end. `step` counts the steps that are
    done."""

    model: M
    optimizers: Optimizers
    schedule: Schedule
    checkpoint: Path
    seed: int
    save_every: int
    score_every: int
    average: M = field(init=False)
    step: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Goes on from the checkpoint, if there is one."""
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        if self.checkpoint.exists():
            found = torch.load(self.checkpoint, weights_only=True, map_location=DEVICE)
            self.model.load_state_dict(found["model"])
            self.average.load_state_dict(found["average"])
            self.optimizers.restore(found["optimizers"])
            self.step = int(found["step"])

    def train(
        self, loss_of: Callable[[int, random.Random], torch.Tensor], score_of: Callable[[M], str], name: str
    ) -> M:
        """Makes the steps that are left, and returns the model with the average of its weights. `loss_of`
        gets the number of the step and its generator; `score_of` says how good the averaged model is."""
        with tqdm(total=self.schedule.steps, initial=self.step, desc=name, unit="step") as bar:
            score, smooth = "", 0.0
            while self.step < self.schedule.steps:
                loss = self._advance(loss_of)
                smooth = loss if not smooth else 0.98 * smooth + 0.02 * loss
                if self.step % self.score_every == 0:
                    score = score_of(self.average)
                    tqdm.write(f"{name}, step {self.step}: loss {smooth:.4f}, {score}")
                if self.step % self.save_every == 0 or self.step == self.schedule.steps:
                    self.save()
                bar.set_postfix_str(f"loss {smooth:.4f}{score and ', '}{score}", refresh=False)
                bar.update()
        return self.average

    def _advance(self, loss_of: Callable[[int, random.Random], torch.Tensor]) -> float:
        """Makes one step, and returns its loss."""
        rng = random.Random(f"{self.seed} {self.step}")
        torch.manual_seed(rng.randrange(2**31))
        loss = loss_of(self.step, rng)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizers.step(self.schedule.share(self.step))
        self._take_in()
        self.step += 1
        return loss.item()

    def _take_in(self) -> None:
        """Moves the average a little towards the weights; early, more."""
        keep = min(AVERAGE, (1 + self.step) / (10 + self.step))
        pairs = zip(self.average.state_dict().values(), self.model.state_dict().values(), strict=True)
        old, new = zip(*((old, new) for old, new in pairs if old.dtype.is_floating_point), strict=True)
        torch._foreach_lerp_(old, new, 1 - keep)

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": self.optimizers.state(),
            "step": self.step,
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)
