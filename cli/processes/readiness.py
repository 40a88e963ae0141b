"""The announcements of a process to whoever started it: the parent process, and a service manager.

To the parent, control and agent announce that they are ready by one line of JSON, with their addresses.

    {"ready": true, "http": "http://127.0.0.1:8000", "grpc": "127.0.0.1:8001"}

A standby writes the line `{"waits": true}` before: it is loaded, and waits for the control before it.
The line is written to the descriptor from the parent process (`--ready-fd`), else to standard output. The
reader waits for the line, or for the end of the pipe, which means that the process has ended; nothing polls.
An agent keeps the descriptor and reports state changes of its workers there, one line each (`send_line`).

A service manager (systemd, `Type=notify`) is told when the process is ready, reloads and stops, at the socket
in NOTIFY_SOCKET. `adopt` takes the variable out of the environment, so that no worker can speak for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

Facts = Mapping[str, str]

LINE_BYTES = 4_096
"""A line up to this size is written to a pipe atomically."""


NOTIFY_SOCKET = "NOTIFY_SOCKET"


class ServiceManager:
    """The manager of this process, or nobody."""

    def __init__(self) -> None:
        self._address = ""
        self._is_ready = False

    def adopt(self, environ: MutableMapping[str, str]) -> None:
        """Takes the address from the environment; one that begins with @ has no name in the file system."""
        address = environ.pop(NOTIFY_SOCKET, "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_ready = False

    def ready(self, status: str) -> None:
        """Says that the start is over, or that the process does something else now."""
        self._is_ready = True
        self._send("READY=1", f"STATUS={status}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Says before the block that files are read again, and afterwards that this is done."""
        if not self._is_ready:
            yield
            return
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stops")

    def _send(self, *lines: str) -> None:
        """Sends one message. Does nothing if the manager does not listen: a manager that wants the message
        ends this process after a time without it."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.sendto("\n".join(lines).encode(), self._address)


MANAGER = ServiceManager()
"""The one of this process."""


def announce(facts: Facts, fd: int | None, *, more: bool = False) -> None:
    """Writes the line and closes the descriptor, so that no worker inherits it. With `more`, the descriptor
    stays open for further lines, but is not inherited. The service manager is told, too."""
    MANAGER.ready("serves")
    line = json.dumps({"ready": True, **facts}) + "\n"
    if fd is None:
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    os.set_inheritable(fd, False)
    with open(fd, "w", encoding="utf-8", closefd=not more) as pipe:
        pipe.write(line)
    if more:
        os.set_blocking(fd, False)


def announce_wait(fd: int | None) -> None:
    """Says that this process is loaded and waits for the one before it: to the service manager, and on a line
    to the parent process."""
    MANAGER.ready("waits for the control before it")
    if fd is not None:
        os.write(fd, b'{"waits": true}\n')


def send_line(report: Mapping[str, Any], fd: int) -> None:
    """Writes a line without blocking: it is lost if the pipe is full or closed."""
    line = json.dumps(dict(report)).encode() + b"\n"
    if len(line) <= LINE_BYTES:
        with suppress(OSError):
            os.write(fd, line)


def parse_waits(line: bytes) -> bool:
    """Returns whether the line says that its process waits for the one before it."""
    return line.endswith(b"\n") and "waits" in json.loads(line)


def parse_ready(line: bytes) -> Facts | None:
    """Returns the facts of a whole line; None if the process ended before it had written one."""
    if not line.endswith(b"\n"):
        return None
    facts = json.loads(line)
    return {name: str(value) for name, value in facts.items() if name != "ready"}
