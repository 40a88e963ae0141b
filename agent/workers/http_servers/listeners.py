"""The process that listens at a port of this host: is it the worker that the port was assigned to?

    /proc/net/tcp, tcp6 ──listening sockets at the port──> inodes ──in /proc/PID/fd of the worker?──> its own

A port is assigned to a worker before it listens, and its server may end while the worker runs on, so another
process may listen there: it must get neither the worker's requests nor its probes. Where the worker's
processes cannot be inspected (they are in a container, or another user's), any listener is accepted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from stoker.agent.host.process_tree.tree import process_table
from stoker.outbound.run_in_thread import run_in_thread

FOREIGN = "another process than the worker's listens at port {port}"

_LISTENS = "0A"
_REACHED = frozenset(
    {
        "0100007F",  # 127.0.0.1
        "00000000",  # any
        "0" * 32,  # any, IPv6
        "0000000000000000FFFF00000100007F",  # 127.0.0.1 as IPv6
    }
)
"""Local addresses at which a connection to 127.0.0.1 arrives, in the notation of a little-endian host."""


def listening(lines: Iterable[str], port: int) -> set[int]:
    """Returns the inodes of the sockets in these lines of /proc/net/tcp that listen at the port, for
    127.0.0.1. The kernel lists the listening sockets first."""
    found = set()
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or ":" not in fields[1]:
            continue  # the heading
        if fields[3] != _LISTENS:
            break
        address, _, number = fields[1].partition(":")
        if int(number, 16) == port and address in _REACHED:
            found.add(int(fields[9]))
    return found


def listeners(port: int) -> set[int]:
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}") as file:
                found |= listening(file, port)
        except OSError:
            continue  # a host without IPv6
    return found


class Listeners:
    """Checks the listeners of ports, and remembers the sockets that it found to be a worker's own."""

    def __init__(self) -> None:
        self._own: dict[int, frozenset[int]] = {}

    async def foreign(self, port: int, pid: int, *, connected: bool = False) -> bool:
        """Returns whether a process that is not of the worker with this `pid` listens at its port. A port
        without listeners is not foreign, unless a connection was just accepted there (`connected`): a process
        that accepts a connection and stops listening at once is hiding."""
        found = listeners(port)
        if pid and connected and not found:
            return True
        if not pid or found <= self._own.get(pid, frozenset()):
            return False
        own = await run_in_thread(f"listeners of {pid}", lambda: _sockets(pid, found))
        self._own[pid] = frozenset(own)
        return bool(found - own)

    def forget(self, pid: int) -> None:
        self._own.pop(pid, None)


def _sockets(pid: int, wanted: set[int]) -> set[int]:
    """Returns the sockets of these that the worker's processes have; all where a process cannot be looked
    into."""
    names = {f"socket:[{inode}]": inode for inode in wanted}
    found: set[int] = set()
    for process in _processes(pid):
        try:
            found |= {names[link] for link in _links(process) if link in names}
        except ProcessLookupError:
            continue
        except OSError:
            return wanted
    return found


def _processes(pid: int) -> set[int]:
    """Returns the worker's process, those of its session, and all below them."""
    table = process_table()
    children = defaultdict(list)
    for seen in table.values():
        children[seen.parent].append(seen.pid)
    unvisited = [seen.pid for seen in table.values() if pid in (seen.pid, seen.session)]
    found: set[int] = set()
    while unvisited:
        one = unvisited.pop()
        if one not in found:
            found.add(one)
            unvisited += children[one]
    return found


def _links(pid: int) -> Iterable[str]:
    """Raises OSError where the process may not be looked into, ProcessLookupError where it has ended."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue
