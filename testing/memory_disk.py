"""An outbox's disk in memory: behaves like `OutboxFile`, and can be made full."""

from __future__ import annotations

from collections.abc import Callable


class MemoryDisk:
    """An OutboxDisk that survives its agent, within one process. `full`: every save fails."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.saves = 0
        self.full = False

    def save(self, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.data = data
        self.saves += 1

    def save_soon(self, data: Callable[[], bytes], done: Callable[[Exception | None], None]) -> None:
        try:
            self.save(data())
        except OSError as error:
            done(error)
        else:
            done(None)

    def load(self) -> bytes | None:
        return self.data
