"""The socket of the local server: on the requested port, or on the next one that is free."""

from __future__ import annotations

import errno
import socket

from stoker.cli.errors import CliError
from stoker.control.rules.limits import DEV_PORTS

PORTS = (1, 65_535)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound to `port` or to one of the next ports. Raises CliError."""
    low, high = PORTS
    if not low <= port <= high:
        raise CliError(f"--port must be from {low} to {high}; got {port}")
    last = min(port + DEV_PORTS - 1, high)
    for one in range(port, last + 1):
        bound = _bound(host, one)
        if bound is not None:
            return bound
    raise CliError(f"the ports {port} to {last} of {host} are in use; choose another with --port")


def _bound(host: str, port: int) -> socket.socket | None:
    """Returns a listening socket, or None if the port is in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CliError(f"--host {host} is not an address of this machine: {error.strerror}") from None
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)  # another server that is bound to the port, but does not listen yet, shows here
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise CliError(f"{host} port {port} cannot be used: {error.strerror}") from None
    found.setblocking(False)
    return found
