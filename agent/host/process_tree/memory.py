"""Measures the memory of a worker: that of its processes by the kernel, that of its devices by the driver.

Only host memory that the kernel cannot reclaim counts: a page shared by several processes counts in parts,
and mapped files (weights) do not count. If that may not be read (another user's process), resident less
shared pages count. /proc is read in a thread, because the read may block while a driver changes the memory of
a process.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Sequence

from stoker.agent.host.devices.interfaces import Sampler
from stoker.agent.host.process_tree.footprint import Footprint
from stoker.agent.host.process_tree.tree import process_table
from stoker.outbound.run_in_thread import run_in_thread
from stoker.wire.messages import Device

log = logging.getLogger(__name__)

_KIB = 1024
_COUNTED = (b"Pss_Anon:", b"Pss_Shmem:")


class WorkerMemory:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def measure(self, pid: int, devices: Sequence[Device], shared: bool) -> Footprint:
        """Measures the memory of a worker. Never raises: what cannot be measured is unknown. `pid` is 0 if
        the worker's processes are hidden. `shared`: other workers use its device, so only what its own
        processes hold counts."""
        try:
            name = f"memory of process {pid}"
            tree = await run_in_thread(name, lambda: tree_of(pid)) if pid else ()
            host = await run_in_thread(name, lambda: tree_memory(tree))
            found = [await self._of(device, tree, shared) for device in devices]
            known = [used for used in found if used is not None]
            return Footprint(host, sum(known) if known and len(known) == len(found) else None)
        except Exception:
            log.exception("the memory of a worker (process %d) could not be measured", pid)
            return Footprint()

    async def _of(self, device: Device, tree: Sequence[int], shared: bool) -> int | None:
        """Returns the memory of one device; None for a CPU device, whose memory is the host's."""
        if device.kind == "cpu" or (shared and not tree):
            return None
        if shared:
            return await self._sampler.memory_of_processes(device.uuid, tree)
        return await self._sampler.memory_used(device.uuid)


def tree_of(pid: int) -> list[int]:
    """Returns this process and all its descendants."""
    children = defaultdict(list)
    for seen in process_table().values():
        children[seen.parent].append(seen.pid)
    tree, unvisited = [pid], list(children[pid])
    while unvisited:
        tree.append(unvisited.pop())
        unvisited += children[tree[-1]]
    return tree


def tree_memory(tree: Sequence[int]) -> int | None:
    """Returns the bytes of all these processes, or None if the first has ended."""
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
        raise FileNotFoundError("the kernel does not report the kinds of pages")
    return sum(int(line[1]) for line in lines) * _KIB


def _resident(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return None
    return max(int(fields[1]) - int(fields[2]), 0) * os.sysconf("SC_PAGESIZE")
