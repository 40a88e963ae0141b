"""Forks a helper that keeps the worker's socket open, then crashes: EOF alone would never come."""

import os
import signal


def handler(job):
    child = os.fork()
    if child == 0:
        signal.pause()
    job.progress({"child": child})
    os.kill(os.getpid(), signal.SIGSEGV)
