"""Rules for batches: which waiting images are made next, together or alone. Pure: time is passed in.

    the oldest   is in the next batch, always; those of its group join it in their order, up to `most`
    it begins    once it is full, or WAIT_S after the oldest came

So whatever arrives after an image delays it by at most WAIT_S. What has no group is made alone, at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.models.interface import ImageParameters, Lora

WAIT_S: Final = 0.02
"""How long the first image of a batch waits for others: jobs that are sent together arrive within this."""


@dataclass(frozen=True, slots=True)
class Group:
    """The properties that images of one batch have in common; they differ in their texts and seeds."""

    width: int
    height: int
    steps: int
    guidance: float | None
    factor: float | None
    has_negative_prompt: bool
    scheduler: str | None
    loras: tuple[Lora, ...]
    more: str

    @property
    def pixels(self) -> int:
        return self.width * self.height


def group_of(parameters: ImageParameters) -> Group | None:
    """Returns the group of an image; None for an image that is made alone, because it starts from another
    or looks at others."""
    if parameters.image is not None or parameters.references:
        return None
    return Group(
        width=parameters.width,
        height=parameters.height,
        steps=parameters.steps,
        guidance=parameters.guidance,
        factor=parameters.factor,
        has_negative_prompt=parameters.negative_prompt is not None,
        scheduler=parameters.scheduler,
        loras=parameters.loras,
        more=json.dumps(dict(parameters.more), sort_keys=True),
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """An image that waits since `since_s`; `group` is None if it is made alone."""

    group: Group | None
    since_s: float


@dataclass(frozen=True, slots=True)
class Begin:
    """The images that are made now, by their positions among those that wait; `reason` says why not more of
    them."""

    positions: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision that nothing begins before `until_s`, unless more arrive; None: nothing waits."""

    until_s: float | None


def next_batch(waiting: Sequence[Waiting], now_s: float, most: Callable[[int], int]) -> Begin | Wait:
    """Chooses the next batch. `waiting` has the oldest first. `most` gives the largest batch of images with
    so many pixels."""
    if not waiting:
        return Wait(None)
    oldest = waiting[0]
    if oldest.group is None:
        return Begin((0,), "it is made alone")
    room = most(oldest.group.pixels)
    if room < 2:
        return Begin((0,), "batches of this size do not pay")
    positions = tuple(position for position, one in enumerate(waiting) if one.group == oldest.group)[:room]
    if len(positions) == room:
        return Begin(positions, "it is full")
    if now_s >= oldest.since_s + WAIT_S:
        return Begin(positions, "no other came in time")
    return Wait(oldest.since_s + WAIT_S)


def slots(groups: Sequence[Group | None], most: Callable[[int], int], largest: int) -> int:
    """Returns how many jobs a worker takes at once which holds images of these groups: as many as make one
    batch of them, `largest` if the worker holds none, and no more than it has while they do not fit together.
    Other jobs are better off at another worker."""
    if not groups:
        return largest
    first = groups[0]
    room = 1 if first is None or len(set(groups)) > 1 else most(first.pixels)
    return max(room, len(groups))
