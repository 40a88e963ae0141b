"""Starts daemons, each orphaned and in a session of its own, and forgets them."""

import os
import signal


def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


def handler(job):
    if job.input == "pid":
        return os.getpid()
    for _ in range(3):
        daemon()
    return "started"
