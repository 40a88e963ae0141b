"""A disk of its own, small enough to be filled: a tmpfs. Only root may mount one; others skip the test."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / ".ballast"

    @property
    def free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Until at most `leave` bytes are free, and again later: what was freed meanwhile is taken, too."""
        with open(self._ballast, "ab") as file:
            while not self._taken(file, leave):
                pass

    def _taken(self, file: BinaryIO, leave: int) -> bool:
        """Whether nobody else took some of it between the look and the taking."""
        more = self.free - leave
        if more <= 0:
            return True
        try:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + more)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def clear(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "stoker-test", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        error_text = getattr(error, "stderr", b"") or str(error).encode()
        pytest.skip(f"no disk of its own can be mounted here: {error_text.decode(errors='replace').strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process that the test left behind by failing must not keep the mount.
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
