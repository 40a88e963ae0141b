"""Which processes a worker started, found in /proc, and their end.

As a subreaper the agent inherits every orphan below it, so nothing a handler starts can leave the agent's
tree. What belongs to one worker is

- the worker, while it is there, with all its descendants;
- every child that the agent inherited and that carries the worker's mark in its environment, or sits in a
  session that was seen to be the worker's, with all its descendants;
- everything of the worker's user, where that is its own.

    look (who is there now) -> kill_all -> look -> … -> nobody

Not found: a process that left the worker's session, wiped its environment, and lost its parent before the
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
from dataclasses import dataclass, field

WORKER_MARK = "STOKER_WORKER"
AGENT_MARK = "STOKER_AGENT"
LIFE_MARK = "STOKER_AGENT_LIFE"
"""Tells what one agent process started from what the next one of the same folder starts."""

PR_SET_CHILD_SUBREAPER = 36

LEFT_MS = 2000
"""How long what an earlier agent left may take to die, each."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the process table. `start` tells two processes with one pid apart."""

    pid: int
    parent: int
    session: int
    start: int
    zombie: bool


@dataclass(slots=True)
class Family:
    """What is known of one worker's processes from look to look. `uid` is its user's, where nobody else has
    that. `others` are workers that live now: their marks are known, and to read one's environment may take as
    long as its driver holds its memory."""

    worker: str
    pid: int
    uid: int | None = None
    others: Collection[int] = ()
    sessions: set[int] = field(default_factory=set)
    members: set[tuple[int, int]] = field(default_factory=set)  # (pid, start), ever seen

    def __post_init__(self) -> None:
        self.sessions.add(self.pid)  # the worker leads a session of its own


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def life() -> str:
    """This process, told from any other that had its number."""
    seen = _seen(os.getpid())
    assert seen is not None
    return f"{seen.pid}.{seen.start}"


def process_table() -> dict[int, Seen]:
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := _seen(int(name))):
            table[seen.pid] = seen
    return table


def _seen(pid: int) -> Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets too.
    fields = line[line.rindex(b")") + 2 :].split()
    return Seen(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in b"ZX")


def marked(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with `name=value` in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return os.fsencode(f"{name}={value}") in file.read().split(b"\0")
    except OSError:
        return False


def look(family: Family) -> list[Seen]:
    """The living processes of a worker; reaps those of its dead that the agent inherited."""
    table = process_table()
    members = _members(family, table)
    family.sessions.update(seen.session for seen in members if seen.session == seen.pid)
    family.members.update((seen.pid, seen.start) for seen in members)
    for seen in members:
        if seen.zombie and seen.parent == os.getpid() and seen.pid != family.pid:
            _reap(seen.pid)
    return [seen for seen in members if not seen.zombie]


def take_in(family: Family, pids: Iterable[int]) -> None:
    """Those that are known to be the worker's by other means."""
    family.members.update((seen.pid, seen.start) for pid in pids if (seen := _seen(pid)))


def _members(family: Family, table: dict[int, Seen]) -> list[Seen]:
    children = defaultdict(list)
    for seen in table.values():
        children[seen.parent].append(seen)
    waiting = [seen for seen in table.values() if _is_root(family, seen)]
    found: dict[int, Seen] = {}
    while waiting:
        seen = waiting.pop()
        if seen.pid not in found:
            found[seen.pid] = seen
            waiting.extend(children[seen.pid])
    return list(found.values())


def _is_root(family: Family, seen: Seen) -> bool:
    if seen.session in family.sessions or (seen.pid, seen.start) in family.members:
        return True
    if family.uid is not None and user_of(seen.pid) == family.uid:
        return True
    mine = seen.parent == os.getpid() and seen.session != os.getsid(0) and seen.pid not in family.others
    return mine and marked(seen.pid, WORKER_MARK, family.worker)


def user_of(pid: int) -> int | None:
    """Its real user. Not that of its folder in /proc, which is root's where it may not be looked into."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return int(text[text.index(b"\nUid:") + 5 :].split(maxsplit=1)[0])


def of_users(first: int, last: int) -> list[Seen]:
    """The living processes of these users."""
    table = [seen for seen in process_table().values() if not seen.zombie]
    return [seen for seen in table if first <= (user_of(seen.pid) or -1) <= last]


def kill_all(processes: Iterable[Seen], number: signal.Signals = signal.SIGKILL) -> None:
    """The signal to each that is still the process that was seen."""
    for seen in processes:
        with contextlib.suppress(OSError), _pidfd(seen) as fd:
            signal.pidfd_send_signal(fd, number)


@contextlib.contextmanager
def _pidfd(seen: Seen) -> Iterator[int]:
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


def reap_strays(workers: set[int]) -> None:
    """Reaps inherited children that ended by themselves while their worker lives on.

    A child of this process's own making is in this session, or leads its own; whoever has any other session
    was made by a worker's descendant.
    """
    mine = os.getsid(0)
    for seen in process_table().values():
        own = seen.session in (mine, seen.pid) or seen.pid in workers
        if seen.zombie and seen.parent == os.getpid() and not own:
            _reap(seen.pid)


def kill_leftovers(agent: str) -> int:
    """Ends the processes that an earlier agent of this data folder left; how many there were."""
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
