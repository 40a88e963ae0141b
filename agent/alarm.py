"""One timer that is set again and again: the shell's side of a machine's `wake_at`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring(at)` at the time last set; a time of None silences it."""

    def __init__(self, ring: Callable[[float], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def set(self, at: float | None) -> None:
        if self._handle is not None:
            if at is not None and self._handle.when() == at:
                return
            self._handle.cancel()
            self._handle = None
        if at is not None:
            self._handle = asyncio.get_running_loop().call_at(at, self._rings, at)

    def _rings(self, at: float) -> None:
        """A loop may be early by its clock's resolution; a machine must not be asked before its time."""
        self._handle = None
        self._ring(max(at, asyncio.get_running_loop().time()))
