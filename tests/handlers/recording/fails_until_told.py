"""Says what it does in every way there is; fails until the file `go` exists."""

import os

from stoker.worker import HandlerError


def handler(job):
    print(f"attempt {job.attempt} looks for a file")
    job.progress({"looking": True})
    job.emit({"attempt": job.attempt})
    if not os.path.exists(job.input["go"]):
        raise HandlerError("there is no file yet")
    return {"attempt": job.attempt}
