"""Sends SIGKILL to its whole process group, as scripts do to clean up after themselves."""

import os
import signal


def handler(job):
    if job.input == "pid":
        return os.getpid()
    os.killpg(0, signal.SIGKILL)
