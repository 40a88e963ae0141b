"""Prints bytes that are no text, and no end of a line."""

import os
import sys


def handler(job):
    if job.input == "pid":
        return os.getpid()
    sys.stdout.buffer.write(bytes(range(256)) * 64 + b"\x1b[2J\x00\xff")
    return "printed"
