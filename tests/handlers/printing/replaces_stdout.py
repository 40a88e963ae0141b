"""Puts something in the place of sys.stdout and sys.stderr that can do nothing at all."""

import os
import sys


class Nothing:
    def write(self, text):
        raise OSError("nothing can be written")


def handler(job):
    if job.input == "pid":
        return os.getpid()
    sys.stdout, sys.stderr = Nothing(), None
    return "replaced"
