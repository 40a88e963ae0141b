"""Closes every descriptor that it may have inherited, as a daemon's first lines do. The worker's socket is
one."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    os.closerange(0, 64)
    return "closed"
