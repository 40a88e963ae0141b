"""Gives back to the device what a stopped job's tensors left in the allocator's cache.

The platform looks at the device's memory before the worker takes another job, and cannot tell a cache from a
leak. Only torch keeps such a cache; it is asked only where it was imported and has started CUDA.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType


def give_back(error: BaseException | None = None) -> None:
    """Never raises. The frames of the handler's error are emptied first, and those of the errors that it was
    raised after or because of: they hold its tensors."""
    cuda = sys.modules.get("torch.cuda")
    try:
        if cuda is None or not cuda.is_initialized():
            return
        for one in _with_those_before(error, sys.exc_info()[1]):
            _clear(one.__traceback__)
        cuda.empty_cache()
    except Exception as problem:
        print(f"the device's memory could not be given back: {problem!r}", file=sys.stderr)


def _with_those_before(*errors: BaseException | None) -> list[BaseException]:
    found: dict[int, BaseException] = {}
    left = list(errors)
    while left:
        one = left.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            left += [one.__context__, one.__cause__]
    return list(found.values())


def _clear(traceback: TracebackType | None) -> None:
    while traceback is not None:
        with suppress(RuntimeError):  # it is being executed: it is ours
            traceback.tb_frame.clear()
        traceback = traceback.tb_next
