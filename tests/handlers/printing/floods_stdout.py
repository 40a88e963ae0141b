"""Prints `size` bytes in lines, as fast as they are taken."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    lines = b"step 0001 of 9999, loss 0.123456789\n" * 1820
    written = 0
    while written < job.input["size"]:
        written += os.write(1, lines)
    return "printed"
