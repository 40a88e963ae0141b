"""The recipe of `flux-mini` as data: seeds, scenes, stages and rates of its training. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

WARM_UP: Final = 100
"""So many steps the rate rises."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a training: `steps` in all; the learning rate is constant, and from step `falls` on it
    falls to zero in a straight line."""

    steps: int
    falls: int
    rate: float

    def share(self, step: int) -> float:
        """Returns the part of the rate at a step."""
        falling = 1 - max(0, step - self.falls) / (self.steps - self.falls)
        return min(1.0, (step + 1) / WARM_UP) * falling


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the transformer's training, until a step: the share of each kind of scene in a batch."""

    name: str
    until: int
    kinds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of the trainings. `pool`: how many scenes the autoencoder sees at a time;
    `autoencoder_batch`: of how many crops of 128 pixels its batches have the size. `scenes` of `kinds` are
    made for the transformer, in parts of `part`; `batch` is the number of pictures in its batches. A
    checkpoint is stored every `save_every` steps, a score made every `score_every`. `compiled`: its blocks
    are compiled, which takes minutes and makes steps faster."""

    stages: tuple[Stage, ...]
    kinds: Mapping[str, float]
    autoencoder: Schedule
    transformer: Schedule
    seed: int = 0
    pool: int = 1_000
    autoencoder_batch: int = 6
    scenes: int = 17_000
    part: int = 256
    batch: int = 64
    save_every: int = 250
    score_every: int = 100
    compiled: bool = True

    def stage(self, step: int) -> Stage:
        """Returns the stage that a step of the transformer belongs to."""
        return next((stage for stage in self.stages if step < stage.until), self.stages[-1])


def _kinds(**shares: float) -> Mapping[str, float]:
    return MappingProxyType(shares)


STAGES: Final = (
    Stage("one object", 500, _kinds(alone=0.7, placed=0.15, several=0.15)),
    Stage("several objects", 2_800, _kinds(alone=0.2, placed=0.22, several=0.45, groups=0.13)),
    Stage("the last points", 4_500, _kinds(alone=0.25, placed=0.25, several=0.47, groups=0.03)),
)
"""Shapes come first, from one object in the middle. Two groups hold the rest back: few are left at last."""

RECIPE: Final = Recipe(
    stages=STAGES,
    kinds=_kinds(alone=0.25, placed=0.25, several=0.43, groups=0.07),
    autoencoder=Schedule(steps=6_000, falls=4_500, rate=2e-3),
    transformer=Schedule(steps=4_500, falls=2_800, rate=3e-3),
)
