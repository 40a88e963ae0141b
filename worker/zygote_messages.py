"""The messages of an agent and a zygote: one JSON object each, with descriptors, over SOCK_SEQPACKET.

    zygote   --------------> agent     ready (names, origins) | refused (why)          once, first
             --------------> agent     spare (pid, +descriptor)   a child that waits to become a worker
             --------------> agent     failed (why)               no child can be made; the zygote ends
    spare    <-------------- agent     become (…, +frame socket, +log)    over the descriptor of its own

The agent ends a zygote, or a spare, by closing its end. Standard library only; no loop.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

MESSAGE_MAX = 192 * 1024
"""Bytes that any host's socket buffer takes in one message. A larger environment needs an `exec`."""

FDS_MAX = 4

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""All 1 in a zygote. A worker that is forked from it has them as its endpoint declares them."""

ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""1 in a zygote: torch then finds a GPU without starting CUDA, which no fork survives. diffusers looks
for a GPU on import, and remembers the answer."""


class TooLarge(ValueError):
    """A message over MESSAGE_MAX."""


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Raises TooLarge, and OSError when the other side has closed."""
    data = json.dumps(message).encode()
    if len(data) > MESSAGE_MAX:
        raise TooLarge(f"a message of {len(data)} bytes; {MESSAGE_MAX} are allowed")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Returns the next message and its descriptors, not inheritable; None when the other side has closed."""
    rights = array.array("i")
    room = socket.CMSG_SPACE(FDS_MAX * rights.itemsize)
    try:
        data, ancillary, _, _ = sock.recvmsg(MESSAGE_MAX + 1, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    fds = list(rights)
    if not data:
        for fd in fds:
            os.close(fd)
        return None
    return json.loads(data), fds
