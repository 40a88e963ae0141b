"""Runs a blocking function in a thread of its own.

The thread is a daemon: it does not keep the process alive, and it cannot be stopped. Unlike
`asyncio.to_thread`, it does not wait for a free thread of a pool.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Returns a future of what `work` returns or raises in a new thread. Cancelling the future does not stop
    the work; the work's result is dropped."""
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
