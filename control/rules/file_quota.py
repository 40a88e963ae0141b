"""The bound on the bytes of uploaded files that the callers of each key keep here at once. Pure: time is an
argument, in seconds that never go back.

    admit ──> 0: counted until the file is deleted       └──> whole seconds until so many bytes are free again

A control process counts from its start on: files that were uploaded before do not count.
"""

from __future__ import annotations

import math
from collections import deque

MOST_BYTES = 50 << 30


class FileQuota:
    """The counts of bytes by key. `kept_s`: how long a file is kept."""

    def __init__(self, kept_s: float, most_bytes: int = MOST_BYTES) -> None:
        self.kept_s = kept_s
        self.most_bytes = most_bytes
        self._files: dict[str, deque[tuple[float, int]]] = {}
        self._bytes: dict[str, int] = {}

    def admit(self, key: str, size: int, now: float) -> int:
        """Returns 0 and counts the file; or how many seconds later a file of this size may be admitted. The
        seconds are whole, as `Retry-After` says them: so no rounding of `now` refuses the caller again."""
        self._forget(now)
        free = self.most_bytes - self._bytes.get(key, 0)
        files = self._files.get(key, deque())
        wait_s = 0
        for until, kept in files:
            if free >= size:
                break
            free, wait_s = free + kept, math.ceil(until - now)
        if wait_s == 0:
            self._files.setdefault(key, files).append((now + self.kept_s, size))
            self._bytes[key] = self._bytes.get(key, 0) + size
        return wait_s

    def take_back(self, key: str, size: int) -> None:
        """Subtracts the newest file of this size, which was not kept after all."""
        files = self._files.get(key, deque())
        for n in range(len(files) - 1, -1, -1):
            if files[n][1] == size:
                del files[n]
                self._subtract(key, size)
                return

    def _forget(self, now: float) -> None:
        for key in tuple(self._files):
            files = self._files[key]
            while files and files[0][0] <= now:
                self._subtract(key, files.popleft()[1])
            if not files:
                del self._files[key]

    def _subtract(self, key: str, size: int) -> None:
        self._bytes[key] -= size
        if not self._bytes[key]:
            del self._bytes[key]
