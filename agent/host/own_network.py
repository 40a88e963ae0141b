"""Opens sockets inside the network of a running container, which differs from the host's.

    this thread of the agent ──setns──> the container's network: one socket is made there, and the thread ends
    the socket stays in that network, whoever uses it: 127.0.0.1 is the container's own

So a program of a container is called at its own loopback, and calls the agent there. Nothing is published,
no firewall of the host is between them, and neither a neighbour nor another host can take that way. It needs
the right CAP_SYS_ADMIN, and the container's process must be visible: an agent in a container runs with
`--pid host`.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

LOOPBACK = "127.0.0.1"
BACKLOG = 512
NEEDS = "the agent's own container needs --pid host and --cap-add SYS_ADMIN"

_CLONE_NEWNET = 0x40000000
_CAP_SYS_ADMIN = 21


class NoEntry(Exception):
    """The network cannot be entered; the message says why."""


def may_enter(status: Path = Path("/proc/self/status")) -> bool:
    """Returns True if this process has the right to enter the network of another."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


class OwnNetwork:
    """The network of a container, for as long as this object is open: the container may end before."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        """Opens the network of process 1 of the container, by its number in the agent's own PID namespace.
        Raises NoEntry."""
        try:
            self._fd = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NoEntry(f"its network cannot be entered ({error.strerror}): {NEEDS}") from None
        if os.fstat(self._fd).st_ino == (proc / "self" / "ns" / "net").stat().st_ino:
            os.close(self._fd)
            raise NoEntry(f"its network is the agent's own: {NEEDS}")

    def close(self) -> None:
        os.close(self._fd)

    def tcp_socket(self) -> socket.socket:
        """Returns a new TCP socket in this network. Raises NoEntry, OSError."""
        return self._inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))

    def listener(self, port: int) -> socket.socket:
        """Returns a socket that listens at this port of the container's loopback. Raises NoEntry."""
        made = self.tcp_socket()
        try:
            made.bind((LOOPBACK, port))
            made.listen(BACKLOG)
        except OSError as error:
            made.close()
            raise NoEntry(f"port {port} of its loopback cannot be opened: {error.strerror}") from None
        return made

    def _inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        """Calls `make` in a thread that has entered the network. Only that thread has, and it ends."""
        made: list[socket.socket | OSError] = []

        def enter() -> None:
            try:
                if ctypes.CDLL(None, use_errno=True).setns(self._fd, _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                made.append(make())
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=enter, name="in a container's network", daemon=True)
        thread.start()
        thread.join()
        (found,) = made
        if isinstance(found, OSError):
            raise NoEntry(f"its network cannot be entered ({found.strerror}): {NEEDS}")
        return found
