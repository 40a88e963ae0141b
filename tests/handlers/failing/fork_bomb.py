"""Forks in each of its children until no more can be made, and returns how that ended."""

import os
import signal


def handler(job):
    if job.input == "pid":
        return os.getpid()
    while True:
        try:
            child = os.fork()
        except OSError as error:
            return error.strerror
        if child == 0:
            signal.pause()
