"""Ignores each signal that can be ignored, and reaps nothing."""

import os
import signal


def handler(job):
    if job.input == "pid":
        return os.getpid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    return "deaf"
