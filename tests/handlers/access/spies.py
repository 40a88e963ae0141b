"""Looks for what belongs to its neighbours and to the agent, and tells what it could get at.

`names` are those of files and folders that it could have heard of: it tries them where it may not list.
"""

import os
import socket
import stat


def handler(job):
    agent = os.environ["STOKER_AGENT"]
    tops = [agent, *job.input["folders"]]
    files = [found for top in tops for found in in_files(top, job.input["names"])]
    return {"uid": os.getuid(), "groups": os.getgroups(), "found": [*in_processes(), *files]}


def in_processes():
    """Those of others that may be looked into, written to or signalled."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if os.getpid() in (int(pid), parent(pid)) or not command(pid):  # of its own, or dead
            continue
        for name in ("environ", "mem", "maps"):
            if can(read, f"/proc/{pid}/{name}"):
                yield f"{name} of {command(pid)}"
        for name in ("fd", "cwd", "root"):
            if can(os.listdir, f"/proc/{pid}/{name}"):
                yield f"{name} of {command(pid)}"
        if can(os.kill, int(pid), 0):
            yield f"a signal to {command(pid)}"


def in_files(top, names):
    waiting = [top]
    while waiting:
        path = waiting.pop()
        try:
            seen = os.lstat(path)
        except OSError:
            continue
        mine = seen.st_uid == os.getuid()
        if stat.S_ISDIR(seen.st_mode):
            listed = can(os.listdir, path)
            inside = os.listdir(path) if listed else []
            waiting += [f"{path}/{name}" for name in {*inside, *names}]
            if not mine and path != top and (listed or os.access(path, os.W_OK)):
                yield f"folder {path}"
        elif not mine and stat.S_ISSOCK(seen.st_mode) and can(connect, path):
            yield f"socket {path}"
        elif not mine and stat.S_ISREG(seen.st_mode) and os.access(path, os.R_OK):
            yield f"file {path}"


def can(what, *given):
    try:
        return what(*given) is not False
    except OSError:
        return False


def read(path):
    """Of a process of the kernel's there is nothing to read."""
    with open(path, "rb") as file:
        return path.endswith("/mem") or file.read(1) != b""


def connect(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(path)


def command(pid):
    return read_whole(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")


def parent(pid):
    fields = read_whole(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def read_whole(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
