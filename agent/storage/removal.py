"""Removes a folder that a handler has had for itself, whatever it made of it.

    top/a/b/c/…   the folders in a folder are moved up beside it before it goes:   top/b, top/.1, top/.2 …

So a tree that is deeper than any path may be long takes no more stack and no more descriptors than a flat
one. Symbolic links are followed nowhere, and rights that were taken from a folder are put back. What cannot
be removed is left: nothing here raises.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | Path) -> None:
    """Each folder is listed once: whoever writes on meanwhile holds nothing up; some of it may be left."""
    if _removed(path):
        return
    with contextlib.suppress(OSError):
        with _opened(path) as top:
            _empty(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    waiting = os.listdir(top)
    numbers = itertools.count()
    while waiting:
        name = waiting.pop()
        if not _removed(name, top):
            with contextlib.suppress(OSError):
                waiting += _moved_up(name, top, numbers)
                os.rmdir(name, dir_fd=top)


def _removed(name: str | Path, folder: int | None = None) -> bool:
    """A folder only when it is empty."""
    for remove in (os.unlink, os.rmdir):
        with contextlib.suppress(OSError):
            remove(name, dir_fd=folder)
            return True
    return False


def _moved_up(name: str, top: int, numbers: Iterator[int]) -> list[str]:
    """Empties one folder of `top`; what did not go at once stands in `top` under these names."""
    moved = []
    with _opened(name, top) as folder:
        for child in os.listdir(folder):
            if _removed(child, folder):
                continue
            with contextlib.suppress(OSError), _opened(child, folder):  # it takes the right to write into it
                new = f".{next(numbers)}"
                os.rename(child, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
    return moved


@contextlib.contextmanager
def _opened(name: str | Path, above: int | None = None) -> Iterator[int]:
    """A folder, with its owner's rights put back. Raises OSError."""
    found = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)
        fd = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        yield fd
    finally:
        os.close(fd)
