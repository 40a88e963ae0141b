"""Calls os._exit in the middle of its job, with the status of success."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    os._exit(0)
