"""Tells its process and attempt; its first attempt goes on once the file `go` exists, a later one at once.

Each start appends a line to the file `runs`, so that a test can count them. It has a scratch folder, so that
a test can see that the folder goes.
"""

import os
import time


def handler(job):
    with open(job.input["runs"], "a") as runs:
        runs.write(f"{job.attempt}\n")
    assert job.scratch.is_dir()
    job.emit({"pid": os.getpid(), "attempt": job.attempt})
    while job.attempt == 1 and not os.path.exists(job.input["go"]):
        job.raise_if_cancelled()
        time.sleep(0.01)
    return {"attempt": job.attempt}
