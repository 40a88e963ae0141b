"""Runs blocking work on a thread of its own, beside the loop.

The thread is a daemon: it holds up no end of the process, and cannot be stopped. Unlike `asyncio.to_thread`
it waits for no free thread of a pool.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def beside(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """What `work` returns or raises. If the future is cancelled the work goes on, and nobody hears of it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def returned(result: T) -> None:
        if not ended.done():
            ended.set_result(result)

    def failed(error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)

    def run() -> None:
        with suppress(RuntimeError):  # the loop is closed
            try:
                result = work()
            except BaseException as error:
                loop.call_soon_threadsafe(failed, error)
            else:
                loop.call_soon_threadsafe(returned, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended
