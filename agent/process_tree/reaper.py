"""Outlives the agent by a moment, and ends what it has started: `python -I -S keeper.py AGENT LIFE [CGROUP]
[FIRST-LAST]`.

    the agent lives ── keeper sleeps ──the agent stops it──> gone
                            '── the agent died (pidfd) ──> kill, look again, … nobody is left ──> gone

Workers die with the agent by themselves (PR_SET_PDEATHSIG). What they started need not: a child of the
field's worker program, a daemon in a session of its own. Killed is

- everything in the agent's cgroups, where it has some;
- every process that carries the agent's mark of this life in its environment;
- every process of the workers' users, where those are a range.

A process that wiped its environment is found by its cgroup or its user only. A handler that runs as the
agent's own user can kill the keeper; the agent then starts another.

It runs by itself, with nothing of the agent: a program of the standard library, in a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

LOOK_AGAIN_S = 0.01
GIVE_UP_S = 20.0
USERS_S = 0.5
"""How long whoever runs as a worker's user is killed: the next agent does it too, and gives them anew."""
LIFE_MARK = "STOKER_AGENT_LIFE"

SPARED_FROM = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal, or the stop of a whole service, sends these to the agent and the keeper alike."""


def main(arguments: list[str]) -> int:
    agent, life = int(arguments[0]), arguments[1]
    cgroup = arguments[2] if len(arguments) > 2 else ""
    first, _, last = (arguments[3] if len(arguments) > 3 else "").partition("-")
    users = range(int(first), int(last) + 1) if first else range(0)
    for number in SPARED_FROM:
        signal.signal(number, signal.SIG_IGN)
    try:
        death = os.pidfd_open(agent)
    except ProcessLookupError:
        pass  # already
    else:
        if os.getppid() == agent:
            select.select([death], [], [])
    began = time.monotonic()
    while time.monotonic() < began + GIVE_UP_S:
        if time.monotonic() > began + USERS_S:
            users = range(0)
        kill_cgroups(cgroup)
        if not kill_marked(f"{LIFE_MARK}={life}".encode(), users) and not populated(cgroup):
            break
        time.sleep(LOOK_AGAIN_S)
    return 0


def kill_cgroups(path: str) -> None:
    """Each below the agent's."""
    for folder in below(path):
        try:
            with open(f"{folder}/cgroup.kill", "w", encoding="ascii") as file:
                file.write("1")
        except OSError:
            continue  # removed meanwhile


def populated(path: str) -> bool:
    for folder in below(path):
        try:
            with open(f"{folder}/cgroup.events", encoding="ascii") as file:
                if "populated 1" in file.read():
                    return True
            os.rmdir(folder)
        except OSError:
            continue
    if path:
        with contextlib.suppress(OSError):  # the next agent's start removes it
            os.rmdir(path)
    return False


def below(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path) if entry.is_dir()] if path else []
    except OSError:
        return []


def kill_marked(mark: bytes, users: range) -> int:
    """How many there were."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and is_ours(name, mark, users):
            try:
                os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
            found += 1
    return found


def is_ours(pid: str, mark: bytes, users: range) -> bool:
    """Dead ones are nobody's: their environment is empty, and whoever inherits them reaps them."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                return True
        if not users:
            return False
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return False
    fields = {line.split(b":")[0]: line.split()[1] for line in lines if line[:4] in (b"Uid:", b"Stat")}
    return fields[b"State"] not in (b"Z", b"X") and int(fields[b"Uid"]) in users


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
