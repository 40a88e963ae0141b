"""Kills its own process in the first attempt at a job, and answers in the second."""

import os
import signal


def handler(job):
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"attempt": job.attempt}
