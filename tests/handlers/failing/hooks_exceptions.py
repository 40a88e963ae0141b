"""Replaces the hooks for uncaught errors with ones that end the process, and raises."""

import os
import sys
import threading


def end(*args):
    os._exit(9)


def handler(job):
    if job.input == "pid":
        return os.getpid()
    sys.excepthook = threading.excepthook = end
    raise ValueError("caught by the runtime, not by the hook")
