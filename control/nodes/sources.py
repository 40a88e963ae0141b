"""Sends the source of `local:` handlers to the nodes that run them.

    a version's first worker ──> the files of its folder are read, named by their digest and packed, once
    a node that lacks them asks ──> the archive, if a worker of that node has this source

The digest stays for the version while control runs: a folder that is changed meanwhile is of no effect on it.
What is packed lies in control's data folder until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from stoker.control.scheduling.cluster_state import ClusterState
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import Source, SourceAnswer, WorkerSpec
from stoker.wire.source_archive import SourceUnusable, digest, pack, read

log = logging.getLogger(__name__)


class Sources:
    """The sources of handlers, packed for nodes. `folder` holds the archives; without one, nothing is sent.
    `without` are files that no node needs."""

    def __init__(self, cluster: ClusterState, folder: Path | None, without: Collection[Path] = ()) -> None:
        self._cluster, self._folder, self._without = cluster, folder, without
        self._of: dict[tuple[str, int, str], Source] = {}
        if folder is not None:
            folder.mkdir(exist_ok=True)
            for left in folder.iterdir():
                left.unlink()

    def of(self, spec: WorkerSpec) -> Source | None:
        """Returns the source of the worker's handler; None if the handler is in no folder of this host."""
        folder = folder_of(spec)
        if folder is None or self._folder is None:
            return None
        key = spec.endpoint, spec.version, spec.handler
        if (known := self._of.get(key)) is None:
            known = self._of[key] = self._packed(folder, self._folder, spec.endpoint)
        return known

    def _packed(self, folder: Path, archives: Path, endpoint: str) -> Source:
        try:
            files = read(folder, self._without)
            name = digest(files)
            (archives / name).write_bytes(pack(files))
        except SourceUnusable as why:
            log.warning("endpoint %s: its files are not sent to other hosts: %s", endpoint, why)
            return Source(str(folder), "", str(why))
        except OSError as error:
            log.error("endpoint %s: its files cannot be packed: %s", endpoint, error)
            return Source(str(folder), "", f"{error.filename} cannot be written: {error.strerror}")
        return Source(str(folder), name)

    async def answer(self, node: str, wanted: str) -> SourceAnswer:
        """Returns the archive of this digest for a node whose workers have it."""
        if self._folder is None or not self._is_of(node, wanted):
            return SourceAnswer(wanted, refusal=f"no worker of node {node} has the source {wanted[:64]!r}")
        file = self._folder / wanted
        try:
            return SourceAnswer(wanted, await run_in_thread(f"source for {node}", file.read_bytes))
        except OSError as error:
            log.error("a source cannot be sent to node %s: %s", node, error)
            return SourceAnswer(wanted, refusal=f"control cannot read it: {error.strerror}")

    def _is_of(self, node: str, wanted: str) -> bool:
        specs = (worker.spec for worker in self._cluster.workers.values() if worker.node == node)
        sources = (self.of(spec) for spec in specs if spec is not None)
        return any(source is not None and source.digest == wanted for source in sources)


def folder_of(spec: WorkerSpec) -> Path | None:
    """Returns the folder of the handler on this host; None for an image and for what is installed."""
    if spec.image or not spec.handler.startswith("/"):
        return None
    path = Path(spec.handler.rpartition(":")[0] if spec.kind == "python" else spec.handler)
    return path.parent if spec.kind == "python" else path
