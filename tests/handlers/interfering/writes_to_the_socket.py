"""Writes into each descriptor that is a socket: a guess at how the worker talks to the agent."""

import os
import stat


def handler(job):
    if job.input == "pid":
        return os.getpid()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, b"GET / HTTP/1.1\r\n\r\n" * 8)
        except OSError:
            pass
    job.emit("written")
    while True:
        job.raise_if_cancelled()
