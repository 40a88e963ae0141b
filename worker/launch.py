"""The first program of every worker process: `python -I -S launch.py`, its request marshalled on stdin.

    request -> cgroup, OOM score -> volume -> limits -> user -> no new privileges -> tie to the agent -> exec

It runs without the worker's environment, since what an endpoint declares may bring code into an interpreter,
and until the user is set it has the agent's rights. The order of the steps is fixed: a cgroup and a mount
need the agent's rights, and the tie is lost when the user changes. The tie outlives the exec.

Standard library only, and few modules of it: json, signal and typing would double what this adds to a start.
A forked worker, which has no exec, takes the same steps from here (`zygote.child`). Why not in the agent:
PR_SET_PDEATHSIG must be set by the process itself, and a `preexec_fn` would run Python in a fork of an agent
that has threads.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
CAPABILITY_VERSION_3 = 0x20080522
SIGKILL, SIGPIPE, SIGXFSZ, SIG_DFL = 9, 13, 25, 0
FIRST_TO_GO = 500
"""Added to a process's score, its share of the memory in thousandths. The kernel kills the highest."""

_libc = ctypes.CDLL(None, use_errno=True)


class LaunchError(Exception):
    """A step failed; the message says which and why."""


def main() -> NoReturn:
    with open(0, "rb", closefd=False) as file:
        request: dict[str, Any] = marshal.load(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        _prepare(request)
        os.chdir(request["folder"])
        tie(request["parent"])
        _become(request["command"], request["environment"])
    except (LaunchError, OSError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(127)


def _prepare(request: Mapping[str, Any]) -> None:
    if request["cgroup"]:
        with open(request["cgroup"], "w", encoding="ascii") as file:
            file.write("0")
    first_to_go()
    if request["mount"]:
        mount(*request["mount"])
    limit(request["limits"])
    if request["user"]:
        uid, gid, groups = request["user"]
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if request["umask"] is not None:
        os.umask(request["umask"])
    no_new_privileges()


def first_to_go() -> None:
    """Makes the kernel kill this process, and what it starts, before the agent when memory runs out: nothing
    else does so for a worker without a limit of its own. A higher score is left as it is."""
    path = "/proc/self/oom_score_adj"
    try:
        with open(path, encoding="ascii") as file:
            now = int(file.read())
        if now < FIRST_TO_GO:
            _write(path, str(FIRST_TO_GO))
    except OSError:  # the score cannot be set: the kernel kills the largest, which is mostly a worker, too
        return


def limit(limits: Mapping[str, Sequence[int]]) -> None:
    for name, (soft, hard) in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))


def no_new_privileges() -> None:
    _call(_libc.prctl, "no new privileges", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def tie(parent: int) -> None:
    """Makes the kernel end this process when its parent dies."""
    _call(_libc.prctl, "the tie to the agent", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the tie was made
        os._exit(1)


def mount(source: str, target: str) -> None:
    """Shows the folder `source` at `target` to this process and what it starts, in a mount namespace of its
    own. A user who is not root needs a user namespace, too, and keeps its id in it. Only with one thread."""
    uid, gid, root = os.geteuid(), os.getegid(), os.geteuid() == 0
    if root and not os.path.isdir(target):
        os.mkdir(target, 0o755)  # on the host: an empty folder, which stays
    flags = CLONE_NEWNS if root else CLONE_NEWNS | CLONE_NEWUSER
    _call(_libc.unshare, "a mount namespace", flags)
    if not root:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _mount(b"none", b"/", MS_REC | MS_PRIVATE)  # or the host would see the mount
    _mount(os.fsencode(source), os.fsencode(target), MS_BIND | MS_REC)
    if not root:
        _drop_capabilities()  # those over the new namespace


def _mount(source: bytes, target: bytes, flags: int) -> None:
    what = f"the mount at {os.fsdecode(target)}"
    _call(_libc.mount, what, source, target, None, ctypes.c_ulong(flags), None)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call(_libc.capset, "giving up capabilities", header, (ctypes.c_uint32 * 6)())


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _call(function: Any, what: str, *arguments: Any) -> None:
    if function(*arguments) != 0:
        raise LaunchError(f"{what} is refused: {os.strerror(ctypes.get_errno())}")


def _become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    for number in (SIGPIPE, SIGXFSZ):  # ignored by Python, and an exec would pass that on
        _libc.signal(number, SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be run: {error.strerror}") from None


if __name__ == "__main__":
    main()
