"""Removes a folder tree that a handler could write to, whatever the handler left in it.

    top/a/b/c/…   the folders inside a folder are first moved up into `top`:   top/b, top/.1, top/.2 …

A tree that is deeper than the longest path therefore takes no more stack and descriptors than a flat one.
Symbolic links are never followed, and the owner's rights to a folder are restored. What cannot be removed is
left; nothing is raised.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | Path) -> None:
    """Removes a tree. Each folder is listed only once, so a process that writes to it meanwhile cannot delay
    the removal, but some of it may be left."""
    if _removed(path):
        return
    with contextlib.suppress(OSError):
        with _opened(path) as top:
            _empty(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    names = os.listdir(top)
    numbers = itertools.count()
    while names:
        name = names.pop()
        if not _removed(name, top):
            with contextlib.suppress(OSError):
                names += _move_up(name, top, numbers)
                os.rmdir(name, dir_fd=top)


def _removed(name: str | Path, folder: int | None = None) -> bool:
    """Removes a file or an empty folder, and returns whether that succeeded."""
    for remove in (os.unlink, os.rmdir):
        with contextlib.suppress(OSError):
            remove(name, dir_fd=folder)
            return True
    return False


def _move_up(name: str, top: int, numbers: Iterator[int]) -> list[str]:
    """Empties one folder of `top`. Folders in it that are not empty are moved to `top`; returns their
    names."""
    moved = []
    with _opened(name, top) as folder:
        for child in os.listdir(folder):
            if _removed(child, folder):
                continue
            with (
                contextlib.suppress(OSError),
                _opened(child, folder),
            ):  # a rename needs the right to write to it
                new = f".{next(numbers)}"
                os.rename(child, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
    return moved


@contextlib.contextmanager
def _opened(name: str | Path, above: int | None = None) -> Iterator[int]:
    """Opens a folder after restoring its owner's rights. Raises OSError."""
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
