"""Signals as calls: SIGINT, SIGTERM and SIGHUP call a function on the running event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_first_signal(call: Callable[[], object]) -> Iterator[None]:
    """Calls `call` on the first signal during the block; a second signal ends the process at once."""

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
    """Calls `call` on each signal during the block; afterwards the signals have their default effect."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
