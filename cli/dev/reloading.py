"""The app as its files are now: it is read again before a call that comes after a change, and by a watch on
the app's folder, which shows a change before the next call.

    call ───> stat of each known file and folder ── the same ──────────────────> the app as it was read
    watch ─┘                                     └─ not ──> list the folder ── another Python file ──> load
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from watchfiles import Change, PythonFilter, awatch

from stoker.cli.dev.project import Project, load
from stoker.client.apps.scan import python_files, scanned_folders, skipped

QUIET_MS = 20
"""How long after the last change the watch reads the app again: editors write a file in steps."""

LONGEST_MS = 200
LOOK_MS = 1_000
"""How often the watch looks by itself: it hears nothing of a change that came before it had begun."""

Stamp: TypeAlias = tuple[int, ...]
"""Of a file or folder: it is another one after each change."""


@dataclass(frozen=True, slots=True)
class Files:
    """The Python files of a folder, and the folders that they are in, with their stamps."""

    files: Mapping[str, Stamp]
    folders: Mapping[str, Stamp]

    @classmethod
    def of(cls, root: Path) -> Files:
        # The stamps of folders first: a file that is added after the listing changes one.
        folders = {folder: _stamp(root, folder) for folder, _ in scanned_folders(root)}
        return cls({path: _stamp(root, path) for path in python_files(root)}, folders)

    def still_so(self, root: Path) -> bool:
        """Returns whether nothing has changed. It lists no folder, however many other files are there."""
        return all(
            _stamp(root, path) == stamp for path, stamp in (*self.files.items(), *self.folders.items())
        )

    def changed(self, other: Files) -> list[str]:
        """Returns the paths of the files that are not the same in both."""
        paths = self.files.keys() | other.files.keys()
        return sorted(path for path in paths if self.files.get(path) != other.files.get(path))


class Reloading:
    """The reloading of an app whose files change. `use` gets the app after a change, and the names of the
    changed files."""

    def __init__(
        self, root: Path, use: Callable[[Project, list[str]], None], say: Callable[[str], None]
    ) -> None:
        self._root, self._use, self._say = root, use, say
        self._files = Files({}, {})
        self._turn = asyncio.Lock()

    async def start(self) -> Project:
        """Reads the app for the first time."""
        self._files = await asyncio.to_thread(Files.of, self._root)
        return await asyncio.to_thread(load, self._root)

    async def refresh(self) -> None:
        """Reads the app again if a file has changed since it was read."""
        async with self._turn:
            if await asyncio.to_thread(self._files.still_so, self._root):
                return
            files = await asyncio.to_thread(Files.of, self._root)  # before the app: it may change meanwhile
            if names := self._files.changed(files):
                try:
                    self._use(await asyncio.to_thread(load, self._root), names)
                except Exception as error:  # the next change is another chance
                    self._say(f"the app cannot be read after the change of {', '.join(names)}: {error!r}")
            self._files = files

    async def watch(self) -> None:
        """Reads the app after each change, until cancelled."""
        watching = awatch(
            self._root,
            watch_filter=_Sources(self._root),
            step=QUIET_MS,
            debounce=LONGEST_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
        )
        try:
            async for _ in watching:
                await self.refresh()
        except (OSError, RuntimeError) as error:  # the host's limit of watches, or the folder was removed
            self._say(f"changes in {self._root} are not shown any more, and used at the next call: {error}")


class _Sources(PythonFilter):
    """Python files, without those in folders that are never scanned."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __call__(self, change: Change, path: str) -> bool:
        folders = Path(path).relative_to(self._root).parts[:-1]
        return not any(map(skipped, folders)) and super().__call__(change, path)


def _stamp(root: Path, path: str) -> Stamp:
    """Returns () for what is not there."""
    try:
        found = os.stat(root / path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
