"""Finds the processes that a worker started, in /proc, and kills them.

The agent is a subreaper: it inherits every orphan among its descendants, so nothing that a handler starts can
leave the agent's tree. These processes belong to a worker:

- the worker itself, with all its descendants;
- every child that the agent inherited and that has the worker's mark in its environment, or is in a session
  that was found to be the worker's, with all its descendants;
- every process of the worker's user, if no other worker has that user.

    look (at the processes now) -> kill_all -> look -> … -> none is left

A process in the middle of execve has no environment for a moment, so the caller looks again.

Not found is a process that left the worker's session, cleared its environment, and lost its parent before the
first look.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

WORKER_MARK = "STOKER_WORKER"
AGENT_MARK = "STOKER_AGENT"
LIFE_MARK = "STOKER_AGENT_LIFE"
"""Tells apart the processes that successive agents of one data folder started."""

PR_SET_CHILD_SUBREAPER = 36

LEFT_MS = 2000
"""How long each process that an earlier agent left may take to die."""


class SeenProcess(Struct, frozen=True):
    """A process. `start` distinguishes two processes that had the same pid."""

    pid: int
    parent: int
    session: int
    start: int
    zombie: bool


class ProcessFamily(Struct):
    """The processes of a worker, as far as they are known between looks.

    uid        its user, if no other worker has that user
    others     the running workers; their environments are not read, which may block while a driver
               holds their memory
    undecided  the last look found an orphan that may belong to the worker
    """

    worker: str
    pid: int
    uid: int | None = None
    others: Collection[int] = ()
    sessions: set[int] = field(default_factory=set)
    members: set[tuple[int, int]] = field(default_factory=set)  # (pid, start), ever seen
    undecided: bool = False

    def __post_init__(self) -> None:
        self.sessions.add(self.pid)  # the worker leads a session of its own


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def life() -> str:
    """Returns a name of this process that no other process with its pid has."""
    seen = _seen(os.getpid())
    assert seen is not None
    return f"{seen.pid}.{seen.start}"


def process_table() -> dict[int, SeenProcess]:
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := _seen(int(name))):
            table[seen.pid] = seen
    return table


def _seen(pid: int) -> SeenProcess | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The name is in brackets and may contain anything, even brackets.
    fields = line[line.rindex(b")") + 2 :].split()
    return SeenProcess(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in b"ZX")


def marked(pid: int, name: str, value: str) -> bool | None:
    """Returns whether the process was started with `name=value` in its environment; None if it is in the
    middle of execve, and has neither arguments nor environment."""
    try:
        environment = _read(pid, "environ")
        if not environment and not _read(pid, "cmdline"):
            os.readlink(f"/proc/{pid}/exe")  # raises for dead processes and kernel threads
            return None
        return os.fsencode(f"{name}={value}") in (environment or _read(pid, "environ")).split(b"\0")
    except OSError:
        return False


def _read(pid: int, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read()


def look(family: ProcessFamily) -> list[SeenProcess]:
    """Returns the running processes of a worker, and reaps its dead ones that the agent inherited."""
    family.undecided = False
    members = _members(family, process_table())
    family.sessions.update(seen.session for seen in members if seen.session == seen.pid)
    family.members.update((seen.pid, seen.start) for seen in members)
    for seen in members:
        if seen.zombie and seen.parent == os.getpid() and seen.pid != family.pid:
            _reap(seen.pid)
    return [seen for seen in members if not seen.zombie]


def add_members(family: ProcessFamily, pids: Iterable[int]) -> None:
    """Adds processes that are known to be the worker's by other means."""
    family.members.update((seen.pid, seen.start) for pid in pids if (seen := _seen(pid)))


def _members(family: ProcessFamily, table: dict[int, SeenProcess]) -> list[SeenProcess]:
    children = defaultdict(list)
    for seen in table.values():
        children[seen.parent].append(seen)
    unvisited = [seen for seen in table.values() if _is_root(family, seen)]
    found: dict[int, SeenProcess] = {}
    while unvisited:
        seen = unvisited.pop()
        if seen.pid not in found:
            found[seen.pid] = seen
            unvisited.extend(children[seen.pid])
    return list(found.values())


def _is_root(family: ProcessFamily, seen: SeenProcess) -> bool:
    if seen.session in family.sessions or (seen.pid, seen.start) in family.members:
        return True
    if family.uid is not None and user_of(seen.pid) == family.uid:
        return True
    mine = seen.parent == os.getpid() and seen.session != os.getsid(0) and seen.pid not in family.others
    known = mine and marked(seen.pid, WORKER_MARK, family.worker)
    family.undecided |= known is None
    return bool(known)


def user_of(pid: int) -> int | None:
    """Returns its real user. The owner of its folder in /proc may be root instead."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return int(text[text.index(b"\nUid:") + 5 :].split(maxsplit=1)[0])


def of_users(first: int, last: int) -> list[SeenProcess]:
    """Returns the running processes of these users."""
    table = [seen for seen in process_table().values() if not seen.zombie]
    return [seen for seen in table if first <= (user_of(seen.pid) or -1) <= last]


def kill_all(processes: Iterable[SeenProcess], number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to each process that still is the one that was seen."""
    for seen in processes:
        with contextlib.suppress(OSError), _pidfd(seen) as fd:
            signal.pidfd_send_signal(fd, number)


@contextlib.contextmanager
def _pidfd(seen: SeenProcess) -> Iterator[int]:
    fd = os.pidfd_open(seen.pid)
    try:
        now = _seen(seen.pid)
        if now is None or now.start != seen.start:
            raise ProcessLookupError(seen.pid)
        yield fd
    finally:
        os.close(fd)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def reap_strays(workers: set[int], unclear: Collection[SeenProcess] = ()) -> list[SeenProcess]:
    """Reaps inherited children that have ended while their worker lives on, and returns those of which it is
    unclear whether they are inherited.

    A child that this process started is in this session or leads its own, and is reaped by whoever started it
    as soon as it ends. So one in any other session was started by a descendant of a worker; and so was one
    that leads its own and has stayed since an earlier look found it `unclear`.
    """
    mine, found = os.getsid(0), list[SeenProcess]()
    for seen in process_table().values():
        if not seen.zombie or seen.parent != os.getpid() or seen.session == mine or seen.pid in workers:
            continue
        if seen.session != seen.pid or seen in unclear:
            _reap(seen.pid)
        else:
            found.append(seen)
    return found


def kill_orphans(agent: str) -> int:
    """Kills the processes that an earlier agent of this data folder left, and returns their number."""
    found = [
        seen for seen in process_table().values() if not seen.zombie and marked(seen.pid, AGENT_MARK, agent)
    ]
    watched = select.poll()
    fds = []
    for seen in found:
        with contextlib.suppress(OSError):
            fds.append(os.pidfd_open(seen.pid))
            watched.register(fds[-1], select.POLLIN)
    kill_all(found)
    waiting = len(fds)
    while waiting and (gone := watched.poll(LEFT_MS)):
        for fd, _ in gone:
            watched.unregister(fd)
        waiting -= len(gone)
    for fd in fds:
        os.close(fd)
    return len(found)
