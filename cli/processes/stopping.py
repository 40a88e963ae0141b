"""Signals as calls: SIGINT, SIGTERM and SIGHUP call a function on the running event loop. In a daemon SIGHUP
calls another one, which reads files again, tells the service manager so, and ends nothing. Of an end the
manager is told here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.cli.processes.readiness import MANAGER

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_first_signal(call: Callable[[], object], reload: Callable[[], object] | None = None) -> Iterator[None]:
    """Calls `call` on the first signal during the block; a second signal ends the process at once. With
    `reload`, SIGHUP calls that, as often as it comes."""

    def first() -> None:
        for number in _ending(reload):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        call()

    loop = asyncio.get_running_loop()
    with on_signals(first, reload):
        yield


@contextmanager
def on_signals(call: Callable[[], object], reload: Callable[[], object] | None = None) -> Iterator[None]:
    """Calls `call` on each signal during the block, and `reload`, where it is given, on SIGHUP; afterwards
    the signals have their default effect."""

    def stopping() -> None:
        MANAGER.stopping()
        call()

    loop = asyncio.get_running_loop()
    for number in _ending(reload):
        loop.add_signal_handler(number, stopping)
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _ending(reload: Callable[[], object] | None) -> tuple[signal.Signals, ...]:
    return SIGNALS if reload is None else tuple(one for one in SIGNALS if one != signal.SIGHUP)
