"""The listener of callers: made here, or handed over by the process that started this one.

A listener that several processes hold outlives each of them. Connections that arrive while none of them
accepts wait in its queue, so that a control can end and another one begin without a caller being refused.
"""

from __future__ import annotations

import socket

BACKLOG = 2_048


class CannotListen(Exception):
    """The address cannot be bound, or what was handed over does not listen; the text says which and why."""


def listen(host: str, port: int) -> socket.socket:
    """Returns a listener of this address. Raises CannotListen."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def adopted(fd: int) -> socket.socket:
    """Returns the listener with this descriptor, which no process that is started later inherits. Raises
    CannotListen where it is not one of TCP."""
    try:
        found = socket.socket(fileno=fd)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise CannotListen(f"descriptor {fd} is not a socket that listens: {error.strerror}") from None
    if not listens or found.family not in (socket.AF_INET, socket.AF_INET6):
        found.detach()
        raise CannotListen(f"descriptor {fd} is not a socket that listens for TCP")
    found.set_inheritable(False)
    return found
