"""The folders of network volumes on this node's disk: how much each holds, and how one is removed.

Both walk whatever handlers made, in threads of their own that nobody waits for at the end of the process. A
walk follows no link and leaves no file system; it rests so often that the node's work does not feel it.

    remove:  weights ──renamed──> .gone-weights-1f2e ──emptied──> nothing      (after a crash: the next agent)

A renamed folder is nobody's: its name is free at once, and what is left of it after a crash is found by its
name.
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

from stoker.agent.beside import beside
from stoker.agent.removal import remove_tree
from stoker.agent.volumes import is_name

log = logging.getLogger(__name__)

GONE = ".gone-"
MOST = 5_000_000
"""Entries of one volume that are counted; with more in it, its size is unknown."""
REST_EVERY, REST_S = 1_000, 0.01
BLOCK = 512
"""Of st_blocks, wherever Linux runs."""


class FoldersOnDisk:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._closed = threading.Event()

    async def clear(self) -> None:
        for name in os.listdir(self._root):
            if name.startswith(GONE):
                await beside(f"remove {name}", partial(remove_tree, self._root / name))

    def close(self) -> None:
        """Ends the walk that is under way."""
        self._closed.set()

    async def measure(self, volume: str) -> int | None:
        path = self._root / volume
        if not is_name(volume) or not path.is_dir():
            return None
        return await beside(f"measure {volume}", lambda: used_bytes(path, self._closed.is_set))

    async def remove(self, volume: str) -> bool:
        path = self._root / volume
        if not is_name(volume) or path.is_symlink() or not path.is_dir():
            return False
        gone = self._root / f"{GONE}{volume}-{secrets.token_hex(4)}"
        path.rename(gone)
        await beside(f"remove {volume}", lambda: remove_tree(gone))
        if gone.exists():
            log.error("some of volume %s could not be removed: it lies in %s", volume, gone)
        return True


def used_bytes(top: Path, over: Callable[[], bool] = lambda: False, most: int = MOST) -> int | None:
    """Bytes of the blocks that everything below it takes, as du counts them: a file with several names once.
    None when `over` says so first, or there is more than can be counted. What goes meanwhile, or lies deeper
    than a path may be long, is not counted."""
    total, count = 0, 0
    linked: set[tuple[int, int]] = set()
    here = _here(os.stat(top))
    waiting = [(str(top), here)]
    while waiting:
        for path, seen in _entries(*waiting.pop()):
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
                    waiting.append((path, _here(seen)))
    return total


def _here(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino


def _entries(path: str, expected: tuple[int, int]) -> list[tuple[str, os.stat_result]]:
    """What lies in the folder, if it is still the one that was seen there: somebody may put a link in its
    place, or in that of a folder above it."""
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
