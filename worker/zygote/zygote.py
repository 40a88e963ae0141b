"""The zygote process: `python -P -m stoker.worker.zygote.zygote --fd N NAME…`, N a socket to the agent.

It imports the names once, checks that a fork is safe then (`fork_safety`), and keeps one spare: a child,
forked ahead, that waits until the agent makes it a worker. That worker is ready in the time that importing
its handler's own file takes.

    zygote ──fork──> middle ──fork──> spare ──become──> worker      the agent's own child, as any other
       │                └ exits at once, and so the agent inherits the spare, which then sends its pid
       └ forks the next one as soon as this one is not a spare any more

- The agent, a subreaper, waits for workers, and its death ends them (PR_SET_PDEATHSIG, set when the agent has
  become their parent). The zygote's death affects no worker.
- A spare sends its pid when it is the agent's child, not before: nothing else could wait for it then.
- No user code and no thread runs here, and no library is called: OpenMP's threads do not survive a fork.
- All children of one zygote share the layout of their memory and the secret of their string hashes.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import socket
import sys
from dataclasses import dataclass
from typing import Any, NoReturn

from stoker.worker import (
    frames,  # noqa: F401  # what the runtime imports, so that a child has it
    zygote_messages,  # what the runtime imports, so that a child has it
)
from stoker.worker.launch import LaunchError, tie
from stoker.worker.serving import (
    channel,  # noqa: F401  # what the runtime imports, so that a child has it
    sync_loop,  # noqa: F401  # what the runtime imports, so that a child has it
)
from stoker.worker.setup import (
    preparation,  # noqa: F401  # what the runtime imports, so that a child has it
    registration,  # noqa: F401  # what the runtime imports, so that a child has it
)
from stoker.worker.setup.collector import seldom_collected
from stoker.worker.zygote.child import (
    LibraryThreads,
    ProcessTitle,
    await_parent,
    become,
    guard,
    libraries,
)
from stoker.worker.zygote.fork_safety import UnsafeToFork, import_all
from stoker.worker.zygote_messages import receive, send

_KNOWN_BEFORE = {name.partition(".")[0] for name in sys.modules} - {
    "resource",
    "pkgutil",
    "ctypes",
    "_ctypes",
}
"""What a fresh worker also imports before its handler. Those that are taken off are a zygote's alone."""


@dataclass(frozen=True, slots=True)
class Zygote:
    """The part of the zygote that its children use."""

    control: socket.socket
    agent_pid: int
    title: ProcessTitle
    threads: LibraryThreads


@dataclass(frozen=True, slots=True)
class BecomeRequest:
    """The worker that a spare becomes."""

    fields: dict[str, Any]
    fds: list[int]


def main(arguments: list[str]) -> int:
    control = socket.socket(fileno=int(arguments[1]))
    os.set_inheritable(control.fileno(), False)
    try:
        title = ProcessTitle()
        with seldom_collected():
            origins = import_all(arguments[2:])
    except (UnsafeToFork, OSError) as error:
        send(control, {"kind": "refused", "why": str(error)})
        return 1
    zygote = Zygote(control, os.getppid(), title, LibraryThreads(libraries()))
    guard(zygote.agent_pid)
    gc.collect()
    gc.freeze()  # so that a child's collector touches, and so copies, nothing of what is shared
    names = sorted({name.partition(".")[0] for name in sys.modules} - _KNOWN_BEFORE)
    send(control, {"kind": "ready", "names": names, "origins": origins})
    request = _keep_a_spare(zygote)
    if request is None:
        _leave()
    _work(request)  # this is a child now
    return 0


def _keep_a_spare(zygote: Zygote) -> BecomeRequest | None:
    """Returns the request in the child that received one; None in the zygote, when the agent closes it."""
    while True:
        try:
            spare = _fork_ahead(zygote)
        except OSError as error:
            send(zygote.control, {"kind": "failed", "why": f"no child can be forked: {error.strerror}"})
            return None
        if isinstance(spare, BecomeRequest):
            return spare
        if not _wait_for_its_end(spare, zygote.control):
            return None


def _wait_for_its_end(spare: int, control: socket.socket) -> bool:
    """Waits until the spare is none any more; False when the agent has closed its end."""
    watched = select.poll()
    watched.register(spare, select.POLLIN)
    watched.register(control, select.POLLIN)
    try:
        return control.fileno() not in {fd for fd, _ in watched.poll()}
    finally:
        os.close(spare)


def _fork_ahead(zygote: Zygote) -> int | BecomeRequest:
    """Returns, in the zygote, a descriptor that closes when the spare is none any more. Raises OSError."""
    ours, theirs = zygote_messages.pair()
    spare, still_spare = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    zygote_pid, middle = os.getpid(), os.fork()
    if middle == 0:
        middle = os.getpid()
        _go_between(zygote_pid)  # returns in the spare
        os.close(spare)
        return _spare(zygote, middle, (ours, theirs), still_spare)
    for fd in (ours.detach(), theirs.detach(), still_spare):
        os.close(fd)
    _, status = os.waitpid(middle, 0)
    if status:
        os.close(spare)
        raise OSError(0, f"the process between died ({os.waitstatus_to_exitcode(status)})")
    return spare


def _go_between(parent: int) -> None:
    """Forks the spare. Returns in the spare only."""
    try:
        tie(parent)
        if os.fork() == 0:
            return
        os._exit(0)
    except BaseException:
        os._exit(1)


def _spare(
    zygote: Zygote, middle: int, ends: tuple[socket.socket, socket.socket], still_spare: int
) -> BecomeRequest:
    """Waits, as a child of the agent, for the request to become a worker."""
    await_parent(middle)
    ours, requests = ends
    try:
        send(zygote.control, {"kind": "spare", "pid": os.getpid()}, [ours.fileno()])
    except OSError:  # the agent has closed the zygote
        _leave()
    ours.close()
    os.setsid()  # only now: the agent reaps what dies in the zygote's session
    zygote.control.close()  # only now: once all have closed it, the agent kills who is in that session
    tie(zygote.agent_pid)
    received = receive(requests)
    if received is None:
        _leave()
    requests.close()
    request = BecomeRequest(*received)
    try:
        become(request.fields, request.fds, zygote.title, zygote.threads)
    except (LaunchError, OSError, ValueError) as error:  # the worker's last line, as in `launch`
        print(error, file=sys.stderr, flush=True)
        os._exit(127)
    os.close(still_spare)
    return request


def _leave() -> NoReturn:
    """Exits without cleaning up: nothing in this process is its own."""
    os._exit(0)


def _work(request: BecomeRequest) -> None:
    """Runs the worker's module as `python -m` does."""
    fd = request.fds[0]
    os.set_inheritable(fd, True)
    module = request.fields["module"]
    sys.argv = [module, "--fd", str(fd)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
