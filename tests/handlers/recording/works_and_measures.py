"""Takes `ms`, measures `letters`, and notes when each run began and ended. Some kill their worker at
first."""

import os
import signal
import time


def handler(job):
    given = job.input
    note(given["runs"], f"began {job.id} {job.attempt} {time.time()}\n")
    if given["dies"] and job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(given["ms"] / 1000)
    job.measure("letters", given["letters"])
    note(given["runs"], f"ended {job.id} {job.attempt} {time.time()}\n")
    return {"n": given["n"]}


def note(path, line):
    """One write: lines of several processes do not mix."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)
