"""Kills its own process in the first attempt at a job; in the second, emits a part and returns a file."""

import os
import signal

from stoker.worker import File


def handler(job):
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    job.emit({"part": 1})
    path = job.scratch / "made.txt"
    path.write_text("made")
    return {"file": File(path, "text/plain")}
