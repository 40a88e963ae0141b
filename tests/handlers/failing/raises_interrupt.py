"""Raises KeyboardInterrupt, which no `except Exception` catches."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    raise KeyboardInterrupt
