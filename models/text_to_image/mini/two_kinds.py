"""Two kinds of objects in one picture, of a network that draws one kind: each half of the picture follows a
sentence of its own.

    "a red car on the left at night"     ──> prediction ─┐ left half
    "a blue house on the right at night" ──> prediction ─┴ right half ──> the same step for both

Both are denoised as a batch of two, from the same noise, and have the same latents after each step. So the
network always sees the whole picture, and the background has no seam.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def of_first(place: str, rows: int, columns: int) -> torch.Tensor:
    """Returns which tokens belong to the first kind, whose place is left, right, top or bottom."""
    import torch

    found = torch.zeros(rows, columns, dtype=torch.bool)
    {
        "left": found[:, : columns // 2],
        "right": found[:, columns // 2 :],
        "top": found[: rows // 2],
        "bottom": found[rows // 2 :],
    }[place].fill_(True)
    return found.reshape(-1, 1)


@contextlib.contextmanager
def merged(scheduler: Any, is_first: torch.Tensor) -> Iterator[None]:
    """Merges the two predictions of each step. The step is replaced on this one object, and put back."""
    import torch

    step = scheduler.step

    @functools.wraps(step)  # pipelines look at its parameters
    def merging(output: torch.Tensor, *rest: Any, **named: Any) -> Any:
        both = torch.where(is_first.to(output.device), output[0], output[1])
        return step(both.expand_as(output), *rest, **named)

    scheduler.step = merging
    try:
        yield
    finally:
        vars(scheduler).pop("step", None)  # the watch over it may have put it back
