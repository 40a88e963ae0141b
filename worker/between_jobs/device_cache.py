"""The device memory cache, emptied of what a stopped job's tensors left behind.

The platform looks at the device's memory before the worker takes another job, and cannot distinguish a cache
from a leak. Only torch keeps such a cache; it is called only if it was imported and has started CUDA.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType


def empty_cache(error: BaseException | None = None) -> None:
    """Returns the device's unused cached memory to the driver. Never raises. The frames of the handler's
    error, its contexts and causes are cleared first, because they hold the job's tensors.
    """
    cuda = sys.modules.get("torch.cuda")
    try:
        if cuda is None or not cuda.is_initialized():
            return
        for one in _with_contexts(error, sys.exc_info()[1]):
            _clear(one.__traceback__)
        cuda.empty_cache()
    except Exception as problem:
        print(f"the device's memory could not be given back: {problem!r}", file=sys.stderr)


def _with_contexts(*errors: BaseException | None) -> list[BaseException]:
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
        with suppress(RuntimeError):  # it is being executed: one of the runtime's own
            traceback.tb_frame.clear()
        traceback = traceback.tb_next
