"""The loop's clock, and one timer that is set again and again: how a shell keeps a machine's `wake_at`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


def loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True, eq=False)
class Alarm:
    """Calls `on_time(at)` at the time that was set last, which is `at`; None stops it."""

    on_time: Callable[[float], None]
    at: float | None = field(default=None, init=False)
    _handle: asyncio.TimerHandle | None = field(default=None, init=False)

    def set(self, at: float | None) -> None:
        if at == self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if at is not None:
            self._handle = asyncio.get_running_loop().call_at(at, self._fire, at)
        self.at = at

    def _fire(self, at: float) -> None:
        """Calls `on_time` with the time that was set, or a later one: the loop may be early by its clock's
        resolution, and a machine must not get a Tick before its time."""
        self.at = self._handle = None
        self.on_time(max(at, loop_time()))
