"""Raises an error whose text is 64 MB long."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    raise ValueError("no " * (1 << 24))
