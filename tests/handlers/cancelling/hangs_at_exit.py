"""Registers something for the interpreter's end that never ends."""

import atexit
import os
import time


def handler(job):
    if job.input == "pid":
        return os.getpid()
    atexit.register(time.sleep, 3600)
    return "registered"
