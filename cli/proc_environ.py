"""What the kernel shows of this process's environment (`/proc/<pid>/environ`): where it stood at the start.

Taking a variable out of `os.environ` leaves it there, for every process of the same user to read. Handlers
may be such processes.
"""

from __future__ import annotations

import ctypes
import os


def wipe(prefix: str) -> None:
    """Overwrites every variable of that prefix. Only of those that have been taken out of `os.environ`:
    nobody points there any more. Does nothing where the kernel does not say where it lies."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    start, end = int(fields[47]), int(fields[48])
    if not 0 < start < end:
        return
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        if entry.startswith(os.fsencode(prefix)):
            ctypes.memset(start, 0, len(entry))
        start += len(entry) + 1
