"""Raises an error that cannot be shown: its text fails, and so does whatever looks at it."""

import os


class Broken(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def handler(job):
    if job.input == "pid":
        return os.getpid()
    raise Broken
