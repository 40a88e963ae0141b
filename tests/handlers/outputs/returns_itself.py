"""Returns a value that holds itself."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    value = {}
    value["value"] = value
    return value
