"""Messages between the worker and the interpreter of its functions: a length of eight bytes, then JSON.

worker  -> call     {"call": n, "module", "callable", "kwargs" | "request", "scratch", "lines"}
           cancel   {"cancel": n}
           taken    {"taken": n}: a chunk of a route, which may have a few on their way
child   -> ready    {"ready": pid}
           of call  {"call": n} with "progress", "chunk", "line", "result", or "error" and "status"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HEAD = 8


def pack(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return len(data).to_bytes(HEAD, "big") + data


def length(head: bytes) -> int:
    return int.from_bytes(head, "big")


def unpack(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(data)
    return message
