"""The garbage collector while a worker starts: what libraries make when they are imported stays, and looking
through it time and again takes a sixth of the time in which torch and diffusers are imported.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

NEW_OBJECTS = 10_000
"""How many there are before the collector runs; Python's own number is 700."""


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Sets the collector's threshold while a handler is imported and set up; a threshold that the handler
    sets itself stays.
    """
    before = gc.get_threshold()
    ours = (NEW_OBJECTS, *before[1:])
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)
