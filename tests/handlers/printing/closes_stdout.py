"""Closes sys.stdout and the descriptors behind it, and goes on."""

import os
import sys


def handler(job):
    if job.input == "pid":
        return os.getpid()
    sys.stdout.close()
    os.close(2)
    return "quiet"
