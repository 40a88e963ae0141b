"""Keeps as many descriptors open as its job says, one of several jobs at a time or alone."""

from __future__ import annotations

import os
import threading
from typing import Any

KEPT: list[int] = []
WAIT = threading.Event()


def handler(job: Any) -> int:
    """Returns how many it keeps; a job with `wait` goes on until one has `free`."""
    if job.input.get("wait"):
        WAIT.wait()
    if job.input.get("free"):
        WAIT.set()
    KEPT.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(job.input.get("keep", 0)))
    return len(KEPT)
