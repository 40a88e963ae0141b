"""How a started part tells that it is ready: one line of JSON, with the addresses that it took.

    {"ready": true, "http": "http://127.0.0.1:8000", "grpc": "127.0.0.1:8001"}

It goes to the descriptor that whoever started the part handed over (`--ready-fd`), else to standard output.
The reader waits for the line, or for the end of the pipe, which means that the part has ended: nobody polls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

Facts = Mapping[str, str]


def announce(facts: Facts, fd: int | None) -> None:
    """Writes the line, and closes the descriptor: no worker may inherit it."""
    line = json.dumps({"ready": True, **facts}) + "\n"
    if fd is None:
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    with open(fd, "w", encoding="utf-8") as pipe:
        pipe.write(line)


def understand(line: bytes) -> Facts | None:
    """The facts of a whole line; None when the part ended before it had written one."""
    if not line.endswith(b"\n"):
        return None
    facts = json.loads(line)
    return {name: str(value) for name, value in facts.items() if name != "ready"}
