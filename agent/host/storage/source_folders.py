"""The source of handlers on this node: the folder that the handler names, if its files are those of control's
host; otherwise a copy, fetched once for each digest.

    folder of that name here ──the same digest──> taken as it is: on control's host, or a shared folder
             │ another, or none
             └──> a copy below the agent's data folder ──none yet──> fetched from control, compared, kept

A copy is never changed. Those of the last KEPT digests that no worker uses stay, for what is started next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from stoker.agent.host.storage.removal import remove_tree
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import Source
from stoker.wire.source_archive import SourceUnusable, digest, read, unpack

KEPT = 16

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the archive of a digest. Raises SourceUnusable."""


class SourceFolders:
    """Copies below `root`; those of an earlier agent are taken over."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._used: dict[str, str] = {}  # digest by worker
        self._fetching = asyncio.Lock()

    async def find(self, worker: str, source: Source, fetch: Fetch) -> Path:
        """Returns the folder, which stays until `release`. Raises SourceUnusable."""
        self._used[worker] = source.digest
        if await run_in_thread(f"source of {worker}", lambda: _is_here(source)):
            return Path(source.folder)
        if not source.digest:
            raise SourceUnusable(
                f"{source.folder} is not on this node, and control does not send it: {source.refusal}"
            )
        copy = self._root / source.digest
        async with self._fetching:
            if not copy.exists():
                archive = await fetch(source.digest)
                used = frozenset(self._used.values())
                await run_in_thread(
                    f"copy of {source.folder}", lambda: self._keep(archive, source.digest, used)
                )
        return copy

    def release(self, worker: str) -> None:
        """Lets the worker's copy be removed. Idempotent."""
        self._used.pop(worker, None)

    def _keep(self, archive: bytes, wanted: str, used: Iterable[str]) -> None:
        """Raises SourceUnusable."""
        try:
            self._root.mkdir(exist_ok=True)
            self._root.chmod(0o711)
            new = self._root / "new"
            remove_tree(new)
            unpack(archive, wanted, new)
            new.rename(self._root / wanted)
            unused = [path for path in self._root.iterdir() if path.name not in used]
            for path in sorted(unused, key=lambda path: path.stat().st_mtime)[:-KEPT]:
                remove_tree(path)
        except OSError as error:
            raise SourceUnusable(f"{error.filename} cannot be written: {error.strerror}") from None


def _is_here(source: Source) -> bool:
    """Returns True if the folder of that name has these files, or any if they have no digest."""
    folder = Path(source.folder)
    if not source.digest:
        return folder.exists()
    try:
        return folder.is_dir() and digest(read(folder)) == source.digest
    except SourceUnusable:
        return False
