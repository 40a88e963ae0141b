"""The source of a worker's handler: only when that is on this node, its process starts. It is looked for each
time, because a folder of this host may have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from stoker.agent.host.storage.source_folders import Fetch, SourceFolders
from stoker.agent.workers.lifecycle.recycling import Spawn
from stoker.agent.workers.lifecycle.reported_state import ReportedState
from stoker.agent.workers.lifecycle.restarts import back_off
from stoker.wire.messages import Source, WorkerSpec
from stoker.wire.source_archive import SourceUnusable

log = logging.getLogger(__name__)


class WorkerSource:
    """Reports why the source cannot be had, and tries again. `spec` has the handler's path on this node."""

    def __init__(
        self,
        spec: WorkerSpec,
        folders: SourceFolders,
        fetch: Fetch,
        reported: ReportedState,
        start: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        self.spec = self._wanted = spec
        self._folders, self._fetch = folders, fetch
        self._reported, self._start, self._spawn = reported, start, spawn
        self._ready = False
        self._finding: asyncio.Task[None] | None = None

    def here(self) -> bool:
        """Returns True if a process may start now; if not, `start` is called once one may."""
        if self._wanted.source is None:
            return True
        ready, self._ready = self._ready, False
        if not ready and self._finding is None:
            name = f"source of worker {self._wanted.worker}"
            self._finding = self._spawn(self._find(self._wanted.source), name)
        return ready

    def renew(self, spec: WorkerSpec) -> None:
        """Takes the source of `spec` for the next process: control may have started again over an edited
        folder, and has the files of before no more. A process that runs is not ended for it."""
        if spec.source is None or spec.source == self._wanted.source:
            return
        self._wanted = spec
        if self._finding is not None:
            self._finding.cancel()
            self._finding = None
            self._start()

    def release(self) -> None:
        """Stops looking for the source, which the worker needs no more. Idempotent."""
        if self._finding is not None:
            self._finding.cancel()
            self._finding = None
        self._folders.release(self._wanted.worker)

    async def _find(self, source: Source) -> None:
        tries = 0
        while (folder := await self._found(source)) is None:
            tries += 1
            await asyncio.sleep(back_off(tries))
        self.spec = replace(self._wanted, handler=moved(self._wanted.handler, source.folder, folder))
        self._finding, self._ready = None, True
        self._reported.will_start()
        self._start()

    async def _found(self, source: Source) -> Path | None:
        try:
            return await self._folders.find(self._wanted.worker, source, self._fetch)
        except SourceUnusable as why:
            log.warning("worker %s does not start: %s", self._wanted.worker, why)
            self._reported.will_wait(str(why), failed=True)
            return None


def moved(handler: str, folder: str, to: Path) -> str:
    """Returns the handler in the other folder: `to/echo.py:handler` for `folder/echo.py:handler`."""
    return f"{to}{handler.removeprefix(folder)}"
