"""Turns SIGINT, SIGTERM and SIGHUP into one call on the running loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_first_signal(call: Callable[[], object]) -> Iterator[None]:
    """The same; a second signal ends the process at once, as `kill -9` does: whoever sends it means it."""

    def first() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        call()

    loop = asyncio.get_running_loop()
    with on_signals(first):
        yield


@contextmanager
def on_signals(call: Callable[[], object]) -> Iterator[None]:
    """For the block; afterwards the signals do again what they do by default."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
