"""The source of handlers on this node: the folder that the handler names, if its files are those of control's
host; otherwise a copy, fetched once for each digest.

    folder of that name here ──the same digest──> taken as it is: on control's host, or a shared folder
             │ another, or none
             └──> a copy below the agent's data folder ──none yet──> fetched from control, compared, kept

A copy is never changed. One of an earlier agent is compared before its first use, and fetched anew where it
is damaged: its host may have lost power while it was written. Those of the last KEPT digests that no worker
uses stay, for what is started next.
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
        self._compared: set[str] = set()
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
            if not await self._is_kept(source.digest):
                archive = await fetch(source.digest)
                used = frozenset(self._used.values())
                await run_in_thread(
                    f"copy of {source.folder}", lambda: self._keep(archive, source.digest, used)
                )
            self._compared.add(source.digest)
        return copy

    async def _is_kept(self, wanted: str) -> bool:
        copy = self._root / wanted
        if wanted in self._compared:
            return copy.exists()
        return await run_in_thread(f"digest of {copy}", lambda: _has(copy, wanted))

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
            remove_tree(self._root / wanted)
            new.rename(self._root / wanted)
            unused = [path for path in self._root.iterdir() if path.name not in used]
            for path in sorted(unused, key=lambda path: path.stat().st_mtime)[:-KEPT]:
                remove_tree(path)
        except OSError as error:
            raise SourceUnusable(f"{error.filename} cannot be written: {error.strerror}") from None


def _is_here(source: Source) -> bool:
    """Returns True if the folder of that name has these files, or any if they have no digest."""
    folder = Path(source.folder)
    return _has(folder, source.digest) if source.digest else folder.exists()


def _has(folder: Path, wanted: str) -> bool:
    """Returns True if the files in and below the folder have this digest."""
    try:
        return folder.is_dir() and digest(read(folder)) == wanted
    except SourceUnusable:
        return False
