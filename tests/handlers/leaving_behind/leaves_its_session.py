"""Wants a session and a process group of its own."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    os.setsid()
