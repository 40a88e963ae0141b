"""Sits in native code that holds the interpreter lock: no cancel reaches it, but SIGTERM ends it."""

import ctypes


def handler(job):
    job.progress("stuck")
    ctypes.PyDLL(None).sleep(job.input.get("seconds", 3600))
    return {"slept": True}
