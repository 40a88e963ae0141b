"""Finds peers that vanished without a word: their host died, or a firewall forgot the connection."""

from __future__ import annotations

import socket

_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A peer that vanished is found in two minutes. Not every system has all three."""


def find_vanished(connected: socket.socket | None) -> None:
    """Lets the system probe a silent peer at intervals."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
