"""Kills what the agent has started once the agent has died: `python -I -S reaper.py AGENT LIFE [CGROUP]
[FIRST-LAST]`.

    the agent lives ── the reaper sleeps ──the agent stops it──> ends
                            '── the agent died (pidfd) ──> kills, looks again, … no process is left ──> ends

Workers die with the agent (PR_SET_PDEATHSIG). Their children may survive: those of a stock worker program, or
a daemon in a session of its own. The reaper kills

- every process in the agent's cgroups, if it has some;
- every process with the mark of this agent process in its environment;
- every process of the workers' users, if those are a range.

A process in the middle of execve has no environment for a moment, so it is checked again. A process that
cleared its environment is found only by its cgroup or user. A handler that runs as the agent's own user can
kill the reaper; the agent then starts another.

The program uses the standard library only, and runs in a session of its own.
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
"""How long processes of the workers' users are killed. The next agent kills them at its start, and then
assigns the users again."""
LIFE_MARK = "STOKER_AGENT_LIFE"

SPARED_FROM = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal, or the stop of a service, sends these to the agent and to the reaper."""


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
        pass  # it has died already
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
    """Kills the processes in every cgroup below the agent's."""
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
    """Kills what is ours, and returns the number of processes that are or may be ours."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            ours = is_ours(name, mark, users)
            try:
                if ours:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
            found += ours is not False
    return found


def is_ours(pid: str, mark: bytes, users: range) -> bool | None:
    """Returns whether the process is ours; None if it is in the middle of execve, and has neither environment
    nor arguments. Dead processes are not ours: their parent reaps them."""
    try:
        if users and runs_as(pid, users):
            return True
        environment = read(pid, "environ")
        if not environment and not read(pid, "cmdline"):
            os.readlink(f"/proc/{pid}/exe")  # raises for dead processes and kernel threads
            return None
        return mark in (environment or read(pid, "environ")).split(b"\0")
    except OSError:
        return False


def runs_as(pid: str, users: range) -> bool:
    lines = read(pid, "status").split(b"\n")
    fields = {line.split(b":")[0]: line.split()[1] for line in lines if line[:4] in (b"Uid:", b"Stat")}
    return fields[b"State"] not in (b"Z", b"X") and int(fields[b"Uid"]) in users


def read(pid: str, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
