"""The announcement that control or an agent is ready: one line of JSON, with its addresses.

    {"ready": true, "http": "http://127.0.0.1:8000", "grpc": "127.0.0.1:8001"}

The line is written to the descriptor from the parent process (`--ready-fd`), else to standard output. The
reader waits for the line, or for the end of the pipe, which means that the process has ended; nothing polls.
An agent keeps the descriptor and reports state changes of its workers there, one line each (`send_line`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

Facts = Mapping[str, str]

LINE_BYTES = 4_096
"""A line up to this size is written to a pipe atomically."""


def announce(facts: Facts, fd: int | None, *, more: bool = False) -> None:
    """Writes the line and closes the descriptor, so that no worker inherits it. With `more`, the descriptor
    stays open for further lines, but is not inherited."""
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


def send_line(report: Mapping[str, Any], fd: int) -> None:
    """Writes a line without blocking: it is lost if the pipe is full or closed."""
    line = json.dumps(dict(report)).encode() + b"\n"
    if len(line) <= LINE_BYTES:
        with suppress(OSError):
            os.write(fd, line)


def parse_ready(line: bytes) -> Facts | None:
    """Returns the facts of a whole line; None if the process ended before it had written one."""
    if not line.endswith(b"\n"):
        return None
    facts = json.loads(line)
    return {name: str(value) for name, value in facts.items() if name != "ready"}
