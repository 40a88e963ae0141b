"""Recurses without an end, in Python."""

import os


def deeper():
    return deeper()


def handler(job):
    if job.input == "pid":
        return os.getpid()
    return deeper()
