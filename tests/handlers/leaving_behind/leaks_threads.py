"""Leaves threads behind that never end, and for which an interpreter would wait at its own end."""

import os
import threading


def handler(job):
    if job.input == "pid":
        return os.getpid()
    for _ in range(100):
        threading.Thread(target=threading.Event().wait).start()
    return threading.active_count() > 100
