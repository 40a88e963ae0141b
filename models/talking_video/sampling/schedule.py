"""Noise levels, and the combination of the forwards of one step.

Pure, and without torch: velocities are any objects that can be added and multiplied.

The model is a rectified flow: at level s a latent is `(1 - s) * clean + s * noise`, and it predicts the
velocity `noise - clean`. One Euler step from s to t is `latent + (t - s) * velocity`.

Guidance takes one, two or three forwards a step, all at the same latent (InfiniteTalk's combination):

    three   u + text (c - a) + audio (a - u)    c: prompt and audio, a: audio alone, u: neither
    two     d + audio (c - d)                   d: prompt alone; the text scale is 1
    one     c                                   both scales are 1: a distilled model
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Forward: TypeAlias = Literal["all", "audio", "text", "nothing"]
"""The conditions of a forward: prompt and audio, only one of them, or neither."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The numbers of adaptive projected guidance (see `projected_guidance`), by default as InfiniteTalk's
    authors have them. `momentum`: the share of the steps before in each difference of two forwards;
    `norm_most`: a larger difference is scaled down to this norm."""

    momentum: float = -0.75
    norm_most: float = 55.0


@dataclass(frozen=True, slots=True)
class Guidance:
    """The factors on the effect of the prompt and of the audio; 1 is no guidance. With a `projection` it is
    projected."""

    text: float = 5.0
    audio: float = 4.0
    projection: Projection | None = None


def levels(steps: int, shift: float) -> list[float]:
    """Returns `steps + 1` noise levels from 1 down to 0: linear in time from 1 to 1/1000, then shifted by
    `shift * t / (1 + (shift - 1) * t)`, which puts more of the steps at high noise."""
    if steps < 1:
        raise ValueError(f"there is at least one step; got {steps}")
    first, last = 1.0, 0.001
    spacing = (first - last) / (steps - 1) if steps > 1 else 0.0
    times = [first - spacing * step for step in range(steps)]
    return [*(shift * t / (1.0 + (shift - 1.0) * t) for t in times), 0.0]


def forwards(guidance: Guidance) -> tuple[Forward, ...]:
    """Returns the forwards of one step, in the order in which `combine` takes their velocities."""
    if guidance.text != 1.0:
        return ("all", "audio", "nothing")
    return ("all", "text") if guidance.audio != 1.0 else ("all",)


def combine(guidance: Guidance, velocity: Callable[[Forward], Any]) -> Any:
    """Returns the velocity of one step. `velocity` runs a forward."""
    needed = forwards(guidance)
    full = velocity("all")
    if len(needed) == 1:
        return full
    if len(needed) == 2:
        silent = velocity("text")
        return silent + guidance.audio * (full - silent)
    audio, nothing = velocity("audio"), velocity("nothing")
    return nothing + guidance.text * (full - audio) + guidance.audio * (audio - nothing)
