"""The imports of a process that runs for long, kept from the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps all that is made until the end of the block from the collector, for ever.

    Modules, classes and functions live as long as the process. To look for garbage among them costs a quarter
    of the imports' time, and each full collection later would hold up the event loop for 0.15 s.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
