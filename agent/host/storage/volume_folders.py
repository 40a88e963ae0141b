"""Measures and removes the folders of network volumes on this node's disk.

Both walk the tree in a daemon thread, for which the end of the process does not wait. A walk follows no link,
stays on one file system, and pauses often enough not to disturb the node's work.

    remove:  weights ──renamed──> .gone-weights-1f2e ──emptied──> removed      (after a crash: by the next
    agent)

After the rename the volume's name is free at once, and what a crash leaves is found by the prefix.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.host.storage.volumes import is_name
from stoker.outbound.run_in_thread import run_in_thread

log = logging.getLogger(__name__)

GONE = ".gone-"
MOST = 5_000_000
"""The most entries of a volume that are counted; the size of a volume with more is unknown."""
REST_EVERY, REST_S = 1_000, 0.01
BLOCK = 512
"""The unit of st_blocks on Linux."""


class FoldersOnDisk:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._closed = threading.Event()

    async def clear(self) -> None:
        for name in os.listdir(self._root):
            if name.startswith(GONE):
                await run_in_thread(f"remove {name}", partial(remove_tree, self._root / name))

    def close(self) -> None:
        """Stops a measurement that is under way."""
        self._closed.set()

    async def measure(self, volume: str) -> int | None:
        path = self._root / volume
        if not is_name(volume) or not path.is_dir():
            return None
        return await run_in_thread(f"measure {volume}", lambda: used_bytes(path, self._closed.is_set))

    async def remove(self, volume: str) -> bool:
        path = self._root / volume
        if not is_name(volume) or path.is_symlink() or not path.is_dir():
            return False
        gone = self._root / f"{GONE}{volume}-{secrets.token_hex(4)}"
        path.rename(gone)
        await run_in_thread(f"remove {volume}", lambda: remove_tree(gone))
        if gone.exists():
            log.error("volume %s could not be removed completely; the rest is in %s", volume, gone)
        return True


def used_bytes(top: Path, over: Callable[[], bool] = lambda: False, most: int = MOST) -> int | None:
    """Returns the bytes of all blocks in the tree, as du does: a file with several links counts once.

    Returns None if `over` returns true meanwhile, or there are more than `most` entries. Entries that are
    removed meanwhile, or whose paths are too long, are not counted."""
    total, count = 0, 0
    linked: set[tuple[int, int]] = set()
    here = _here(os.stat(top))
    folders = [(str(top), here)]
    while folders:
        for path, seen in _entries(*folders.pop()):
            count += 1
            if over() or count > most:
                return None
            if count % REST_EVERY == 0:
                time.sleep(REST_S)
            is_folder = stat.S_ISDIR(seen.st_mode)
            if seen.st_nlink > 1 and not is_folder:
                if _here(seen) in linked:
                    continue
                linked.add(_here(seen))
            if seen.st_dev == here[0]:
                total += seen.st_blocks * BLOCK
                if is_folder:
                    folders.append((path, _here(seen)))
    return total


def _here(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino


def _entries(path: str, expected: tuple[int, int]) -> list[tuple[str, os.stat_result]]:
    """Lists the folder if it is still the expected one: a handler may replace it, or a folder above it, by a
    link."""
    found = []
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _here(os.fstat(opened)) == expected:
                for name in os.listdir(opened):
                    with suppress(OSError):
                        found.append((f"{path}/{name}", os.stat(name, dir_fd=opened, follow_symlinks=False)))
        finally:
            os.close(opened)
    return found
