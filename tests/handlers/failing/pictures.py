"""A handler that emits chunks and returns a picture: the same each time, unless it is to differ."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from stoker.worker.sdk import File


def handler(job: Any) -> Generator[Any, None, Any]:
    for n in range(3):
        yield {"part": n}
    shade = 200 if job.input.get("differs") else 100
    if job.input.get("differs"):
        shade += os.getpid() % 50
    path = Path(job.scratch) / "picture.ppm"
    path.write_bytes(b"P6 2 1 255\n" + bytes([10, 20, 30, 40, 50, shade]))
    return {"picture": File(path)}
