"""Removal of secrets from `/proc/<pid>/environ`, where the kernel shows this process's initial environment.

Removing a variable from `os.environ` leaves it there, and every process of the same user can read it.
Handlers may be such processes.
"""

from __future__ import annotations

import ctypes
import os


def wipe_variables(prefix: str) -> None:
    """Overwrites every variable with that prefix. They must have been removed from `os.environ` before, so
    that nothing points there any more. Does nothing if the kernel does not show where the environment is."""
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
