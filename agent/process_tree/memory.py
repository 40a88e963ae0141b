"""How much memory a worker holds: its processes as the kernel counts them, its device as the driver does.

Of the host's memory counts what the kernel could not take back at will: a page that several processes share
counts in parts, and a file that is mapped (weights) not at all. Where that may not be read (another user's
process), resident less shared pages. A look reads /proc in a thread, which may hang there: of a process that
its driver holds in the middle of a change of its memory, nothing is told.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Sequence

from stoker.agent.beside import beside
from stoker.agent.process_tree import process_table
from stoker.agent.recycle import Footprint
from stoker.agent.seams import Sampler
from stoker.wire.messages import Device

log = logging.getLogger(__name__)

_KIB = 1024
_COUNTED = (b"Pss_Anon:", b"Pss_Shmem:")


class WorkerMemory:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def measure(self, pid: int, devices: Sequence[Device], shared: bool) -> Footprint:
        """Never raises: what cannot be looked at is unknown. `pid` 0: a worker whose processes are hidden.
        `shared`: others work on its device, and only what its own processes hold counts."""
        try:
            name = f"memory of process {pid}"
            tree = await beside(name, lambda: tree_of(pid)) if pid else ()
            host = await beside(name, lambda: tree_memory(tree))
            found = [await self._of(device, tree, shared) for device in devices]
            known = [used for used in found if used is not None]
            return Footprint(host, sum(known) if known and len(known) == len(found) else None)
        except Exception:
            log.exception("the memory of a worker (process %d) could not be measured", pid)
            return Footprint()

    async def _of(self, device: Device, tree: Sequence[int], shared: bool) -> int | None:
        """A processor's memory is the host's: it says nothing of a worker."""
        if device.kind == "cpu" or (shared and not tree):
            return None
        if shared:
            return await self._sampler.memory_held(device.uuid, tree)
        return await self._sampler.memory_used(device.uuid)


def tree_of(pid: int) -> list[int]:
    """This process and all its descendants."""
    children = defaultdict(list)
    for seen in process_table().values():
        children[seen.parent].append(seen.pid)
    tree, waiting = [pid], list(children[pid])
    while waiting:
        tree.append(waiting.pop())
        waiting += children[tree[-1]]
    return tree


def tree_memory(tree: Sequence[int]) -> int | None:
    """Bytes of all these processes; None when the first is gone."""
    own = _memory(tree[0]) if tree else None
    return None if own is None else own + sum(_memory(one) or 0 for one in tree[1:])


def _memory(pid: int) -> int | None:
    try:
        return _unreclaimable(pid)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return _resident(pid)


def _unreclaimable(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        lines = [line.split() for line in file if line.startswith(_COUNTED)]
    if len(lines) < len(_COUNTED):
        raise FileNotFoundError("the kernel does not tell the kinds of pages")
    return sum(int(line[1]) for line in lines) * _KIB


def _resident(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return None
    return max(int(fields[1]) - int(fields[2]), 0) * os.sysconf("SC_PAGESIZE")
