"""The template process: `python -P -m stoker.worker.template --fd N NAME…`, N a socket to the agent.

It imports the names once, proves that a fork is safe then (`template_proof`), and keeps one spare: a child,
forked ahead, that waits until the agent makes a worker of it. A worker is then ready in the time that its
handler's own file takes.

    template ──fork──> middle ──fork──> spare ──become──> worker      the agent's own child, as any other
        │                └ leaves at once, and so the agent inherits the spare, which then says its pid
        └ forks the next one as soon as this one is no spare any more

- It is the agent, a subreaper, who waits for workers and whose death ends them (PR_SET_PDEATHSIG, set when
  the agent has become their parent). The template's death touches no worker.
- A spare says its pid when it is the agent's child, not before: nobody else could wait for it then.
- No user code runs here, no thread, and nothing is called: OpenMP's threads do not survive a fork.
- All children of one template share the layout of their memory and their string hashes' secret.
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

from stoker.worker import (  # noqa: F401  # what the runtime imports, so that a child has it
    channel,
    frames,
    preparation,
    printed,
    registration,
    sync_loop,
    template_words,
)
from stoker.worker.launch import NotDone, tie
from stoker.worker.template_child import (
    Shown,
    Threads,
    await_parent,
    become,
    guard,
    libraries,
)
from stoker.worker.template_proof import Unfit, import_all
from stoker.worker.template_words import receive, send

_KNOWN_BEFORE = {name.partition(".")[0] for name in sys.modules} - {
    "resource",
    "pkgutil",
    "ctypes",
    "_ctypes",
}
"""What a fresh worker would have imported as well before its handler. Those are a template's alone."""


@dataclass(frozen=True, slots=True)
class Template:
    """What its children need of it."""

    control: socket.socket
    agent: int
    shown: Shown
    threads: Threads


@dataclass(frozen=True, slots=True)
class Order:
    """What a spare was told to become."""

    request: dict[str, Any]
    fds: list[int]


def main(arguments: list[str]) -> int:
    control = socket.socket(fileno=int(arguments[1]))
    os.set_inheritable(control.fileno(), False)
    try:
        shown = Shown()
        origins = import_all(arguments[2:])
    except (Unfit, OSError) as error:
        send(control, {"kind": "refused", "why": str(error)})
        return 1
    template = Template(control, os.getppid(), shown, Threads(libraries()))
    guard(template.agent)
    gc.collect()
    gc.freeze()  # so that a child's collector touches, and so copies, nothing of what is shared
    names = sorted({name.partition(".")[0] for name in sys.modules} - _KNOWN_BEFORE)
    send(control, {"kind": "ready", "names": names, "origins": origins})
    order = _keep_a_spare(template)
    if order is None:
        _leave()
    _work(order)  # we are a child now
    return 0


def _keep_a_spare(template: Template) -> Order | None:
    """An order in the child that got one; None in the template, when the agent is done with it."""
    while True:
        try:
            made = _fork_ahead(template)
        except OSError as error:
            send(template.control, {"kind": "failed", "why": f"no child can be forked: {error.strerror}"})
            return None
        if isinstance(made, Order):
            return made
        if not _wait_for_its_end(made, template.control):
            return None


def _wait_for_its_end(spare: int, control: socket.socket) -> bool:
    """Until the spare is one no more; False when the agent has closed its end."""
    watched = select.poll()
    watched.register(spare, select.POLLIN)
    watched.register(control, select.POLLIN)
    try:
        return control.fileno() not in {fd for fd, _ in watched.poll()}
    finally:
        os.close(spare)


def _fork_ahead(template: Template) -> int | Order:
    """In the template a descriptor that closes when the child is no spare any more. Raises OSError."""
    ours, theirs = template_words.pair()
    spare, still_spare = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    template_pid, middle = os.getpid(), os.fork()
    if middle == 0:
        middle = os.getpid()
        _go_between(template_pid)  # and on, in the spare
        os.close(spare)
        return _spare(template, middle, (ours, theirs), still_spare)
    for fd in (ours.detach(), theirs.detach(), still_spare):
        os.close(fd)
    _, status = os.waitpid(middle, 0)
    if status:
        os.close(spare)
        raise OSError(0, f"the process between died ({os.waitstatus_to_exitcode(status)})")
    return spare


def _go_between(parent: int) -> None:
    """Comes back in the spare only."""
    try:
        tie(parent)
        if os.fork() == 0:
            return
        os._exit(0)
    except BaseException:
        os._exit(1)


def _spare(
    template: Template, middle: int, ends: tuple[socket.socket, socket.socket], still_spare: int
) -> Order:
    """Waits, as a child of the agent's, for what it is to become."""
    await_parent(middle)
    ours, orders = ends
    try:
        send(template.control, {"kind": "spare", "pid": os.getpid()}, [ours.fileno()])
    except OSError:  # the agent has done with the template
        _leave()
    ours.close()
    os.setsid()  # only now: the agent reaps what dies in the template's session
    template.control.close()  # only now: once all have closed it, the agent kills who is in that session
    tie(template.agent)
    received = receive(orders)
    if received is None:
        _leave()
    orders.close()
    order = Order(*received)
    _become(template, order)
    os.close(still_spare)
    return order


def _become(template: Template, order: Order) -> None:
    """What fails is the last that the worker says, as in `launch`."""
    try:
        become(order.request, order.fds, template.shown, template.threads)
    except (NotDone, OSError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(127)


def _leave() -> NoReturn:
    """Nobody wants this process, and nothing in it is its own."""
    os._exit(0)


def _work(order: Order) -> None:
    """As `python -m` does it: the module is the program."""
    fd = order.fds[0]
    os.set_inheritable(fd, True)
    module = order.request["module"]
    sys.argv = [module, "--fd", str(fd)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
