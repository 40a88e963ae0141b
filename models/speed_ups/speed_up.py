"""Declarations of speed-ups, and the loaded pipeline that they change.

A speed-up is a function that changes a `Loaded` in place and returns how, in a few words. It raises NotHere
where it does not run or does not pay, with the reason; the pipeline is then as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias


class NotHere(Exception):
    """The speed-up does not run here, or does not pay; the message says why."""


class Changes(StrEnum):
    """The change that a speed-up makes to the output: not a bit; the last bits, as another order of sums
    does; or what is seen."""

    NOTHING = "nothing"
    ROUNDING = "rounding"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pipeline that is loaded and has not run. `network` is what every step runs; `vae` decodes its
    latents, None if the pipeline decodes by itself; `pipe` is diffusers' pipeline, None if there is none.
    `steps`: of a usual job. `examples` are jobs of one step, one for each size that is to be quick, the
    largest first. `cache`: the folder in which compiled code is kept, None to keep none."""

    network: Any
    vae: Any
    device: str
    pipe: Any = None
    steps: int = 28
    examples: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    cache: Path | None = None

    @property
    def on_gpu(self) -> bool:
        """Returns whether the device is a GPU, for which speed-ups are made."""
        return self.device.startswith("cuda")


Apply: TypeAlias = Callable[[Loaded], str]


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """A speed-up. `about`: what it does, as a sentence. `gpu_only`: on a CPU a profile leaves it out.
    `bound`: the most by which a pixel of an 8-bit image may differ, where only rounding changes. `alone`: the
    speed-up decides by what is computed, once for all images of a batch, so an image would depend on its
    neighbours: images are made alone."""

    name: str
    about: str
    changes: Changes
    apply: Apply
    gpu_only: bool = True
    bound: int = 0
    alone: bool = False
