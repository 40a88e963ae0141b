"""The gain of batches: whether they pay, from measured times. Pure.

A batch of n images pays if its jobs end earlier on average than one after another: all at t(n), against t(1),
2 t(1), … n t(1); that is, if t(n) <= (n + 1) / 2 t(1). Of those, the one with the least time for an image is
chosen. So batches shorten a queue, and the mean time of its jobs too. A large network is limited by its
arithmetic at large sizes, and batches do not pay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

LEVELS_MOST: Final = 2.0
"""How much an image of a batch may differ from the same one made alone: the mean over all values of all its
pixels, of 255 levels."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a whole job at one size, alone and in batches, by their number of images."""

    side: int
    alone_s: float
    batch_s: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Batching:
    """The largest batch that pays, by the pixels of its images, and the reason. Between two sizes that were
    measured the larger counts; above them all images are made alone."""

    reason: str
    most: Mapping[int, int] = field(default_factory=dict)

    def most_at(self, pixels: int) -> int:
        return next((self.most[size] for size in sorted(self.most) if pixels <= size), 1)

    @property
    def largest(self) -> int:
        return max(self.most.values(), default=1)


def best(times: Times) -> int:
    """Returns how many images of this size are made at once; 1 if no batch pays."""
    pays = {
        count: seconds / count
        for count, seconds in times.batch_s.items()
        if seconds <= (count + 1) / 2 * times.alone_s
    }
    return min(pays, key=lambda count: (pays[count], count), default=1)


def decide(measured: Sequence[Times], differ_levels: float) -> Batching:
    """Decides which batches are made. `measured` has the smallest size first; `differ_levels` is by how much
    images in a batch differ."""
    if differ_levels > LEVELS_MOST:
        return Batching(
            f"images in a batch differ by {differ_levels:.1f} of 255 levels from those made alone,"
            f" over the {LEVELS_MOST:g} that are allowed"
        )
    texts = [_text(times, best(times)) for times in measured]
    most = {times.side**2: best(times) for times in measured if best(times) > 1}
    return Batching("; ".join(texts) or "the smallest image does not fit into memory", most)


def _text(times: Times, count: int) -> str:
    at = f"{times.side} x {times.side}"
    if count == 1:
        return f"alone at {at} and above: {times.alone_s:.3g} s for one image" + "".join(
            f", {seconds:.3g} s for {number}" for number, seconds in times.batch_s.items()
        )
    return f"{count} at {at}: {times.batch_s[count]:.3g} s, against {times.alone_s:.3g} s for one"


def job_seconds(marks_s: Sequence[float], steps: int) -> float:
    """Returns the seconds of a job with this many steps, from a job with fewer. `marks_s`: when the job
    began, after each of its steps (at least two), and when its images were there."""
    made = len(marks_s) - 2
    step_s = (marks_s[-2] - marks_s[1]) / (made - 1)
    return max(0.0, marks_s[-1] - marks_s[0] - made * step_s) + steps * step_s
