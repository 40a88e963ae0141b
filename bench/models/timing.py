"""Timing of work on a GPU or a CPU, with torch."""

from __future__ import annotations

import time
from collections.abc import Callable


def timed(work: Callable[[], object]) -> float:
    """The seconds that `work` takes, with all that it starts on the GPU."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
