"""The recipe of `flux-mini` as data: seeds, scenes, stages and rates of its training. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

Size: TypeAlias = tuple[int, int]
"""The width and the height of a picture in pixels."""

TOKEN: Final = 32
"""The side of what a token of the transformer shows, in pixels."""
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
    """A part of a phase, until a step. `kinds`: the share of each kind of scene in a batch; `sizes`: the
    share of the batches that have pictures of a size."""

    name: str
    until: int
    kinds: Mapping[str, float]
    sizes: Mapping[Size, float]


@dataclass(frozen=True, slots=True)
class Phase:
    """A training of the transformer with a schedule of its own, which begins with the weights of the phase
    before. `name` is the folder of its weights. `scenes`: how many are made of each size, and `kinds`: the
    share of each kind in them. A batch has as many pictures as give `tokens`."""

    name: str
    schedule: Schedule
    stages: tuple[Stage, ...]
    scenes: Mapping[Size, int]
    kinds: Mapping[str, float]
    tokens: int

    def stage(self, step: int) -> Stage:
        """Returns the stage that a step belongs to."""
        return next((stage for stage in self.stages if step < stage.until), self.stages[-1])

    def batch(self, size: Size) -> int:
        """Returns the number of pictures of this size in a batch."""
        width, height = size
        return max(1, self.tokens * TOKEN**2 // (width * height))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of the trainings. `pool`: how many scenes the autoencoder sees at a time;
    `autoencoder_batch`: of how many crops of 128 pixels its batches have the size. Scenes are made in parts
    of `part`. A checkpoint is stored every `save_every` steps, a score made every `score_every`. `compiled`:
    the transformer's blocks are compiled, which takes minutes and makes steps faster."""

    autoencoder: Schedule
    phases: tuple[Phase, ...]
    seed: int = 0
    pool: int = 1_000
    autoencoder_batch: int = 6
    part: int = 256
    save_every: int = 250
    score_every: int = 100
    compiled: bool = True


def _shares(**shares: float) -> Mapping[str, float]:
    return MappingProxyType(shares)


SMALL: Final[Mapping[Size, float]] = MappingProxyType({(256, 256): 1.0})
LARGE: Final[Mapping[Size, float]] = MappingProxyType({(512, 512): 1.0})
MOSTLY_WIDE: Final[Mapping[Size, float]] = MappingProxyType(
    {(512, 512): 0.3, (768, 512): 0.35, (512, 768): 0.35}
)
LARGE_AND_WIDE: Final[Mapping[Size, float]] = MappingProxyType(
    {(512, 512): 0.6, (768, 512): 0.2, (512, 768): 0.2}
)
ALL_KINDS: Final = _shares(alone=0.25, placed=0.25, several=0.43, groups=0.07)
LAST_KINDS: Final = _shares(alone=0.22, placed=0.25, several=0.50, groups=0.03)

SHAPES: Final = Phase(
    name="of-256-pixels",
    schedule=Schedule(steps=4_500, falls=2_800, rate=3e-3),
    stages=(
        Stage("one object", 500, _shares(alone=0.7, placed=0.15, several=0.15), SMALL),
        Stage("several objects", 2_800, _shares(alone=0.2, placed=0.22, several=0.45, groups=0.13), SMALL),
        Stage("the last points", 4_500, _shares(alone=0.25, placed=0.25, several=0.47, groups=0.03), SMALL),
    ),
    scenes=MappingProxyType({(256, 256): 17_000}),
    kinds=ALL_KINDS,
    tokens=64 * 64,
)
"""Shapes come first, from one object in the middle. Two groups hold the rest back: few are left at last."""

DETAILS: Final = Phase(
    name="of-512-pixels",
    schedule=Schedule(steps=3_200, falls=1_600, rate=2e-3),
    stages=(
        Stage("larger", 2_000, LAST_KINDS, LARGE),
        Stage("other shapes", 3_200, LAST_KINDS, LARGE_AND_WIDE),
    ),
    scenes=MappingProxyType({(512, 512): 10_000, (768, 512): 3_000, (512, 768): 3_000}),
    kinds=ALL_KINDS,
    tokens=32 * 256,
)
"""Small icons survive the autoencoder in larger pictures only."""

WIDTHS: Final = Phase(
    name="trained",
    schedule=Schedule(steps=1_600, falls=600, rate=2e-3),
    stages=(Stage("wide and high", 1_600, LAST_KINDS, MOSTLY_WIDE),),
    scenes=MappingProxyType({(512, 512): 10_000, (768, 512): 3_000, (512, 768): 3_000}),
    kinds=ALL_KINDS,
    tokens=32 * 256,
)
"""A shape of its own takes as long as a size: after a thousand batches of these beside squares, objects on
them were still blobs."""

RECIPE: Final = Recipe(
    autoencoder=Schedule(steps=6_000, falls=4_500, rate=2e-3), phases=(SHAPES, DETAILS, WIDTHS)
)
