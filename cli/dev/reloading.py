"""A watch on the app's folder, which reads the app again after each change of a Python file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from watchfiles import Change, PythonFilter, awatch

from stoker.cli.dev.project import Project, load
from stoker.client.apps.scan import skipped

QUIET_MS = 20
"""How long after the last change the app is read again: editors write a file in steps."""

LONGEST_MS = 200


class _Sources(PythonFilter):
    """Python files, without those in folders that are never scanned."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __call__(self, change: Change, path: str) -> bool:
        folders = Path(path).relative_to(self._root).parts[:-1]
        return not any(map(skipped, folders)) and super().__call__(change, path)


async def reload_after_changes(
    root: Path, use: Callable[[Project, list[str]], None], say: Callable[[str], None]
) -> None:
    """Calls `use` with the app and the names of the changed files after each change, until cancelled."""
    try:
        async for changes in awatch(
            root, watch_filter=_Sources(root), step=QUIET_MS, debounce=LONGEST_MS, stop_event=None
        ):
            names = sorted({str(Path(path).relative_to(root)) for _, path in changes})
            try:
                use(await asyncio.to_thread(load, root), names)
            except Exception as error:  # the next change is another chance
                say(f"the app cannot be read after the change of {', '.join(names)}: {error!r}")
    except (OSError, RuntimeError) as error:  # the host's limit of watches, or the folder was removed
        say(f"changes in {root} are not seen any more: {error}")
