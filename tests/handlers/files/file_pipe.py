"""Returns a named pipe that nobody writes to: opening it carelessly would wait for ever."""

import os

from stoker.worker import File


def handler(job):
    path = job.scratch / "pipe"
    os.mkfifo(path)
    return {"file": File(path)}
