"""A port of the loopback that nobody else is given: not before its server listens, nor while it is down."""

from __future__ import annotations

import socket


def kept_port() -> socket.socket:
    """Bound, and never listened on. A server that sets SO_REUSEADDR, as most do, can listen beside it; others
    who ask for any port get another, and who connects is refused until the server is there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
