"""Says that it runs, then waits for ever without asking whether it was cancelled; SIGTERM ends it."""

import signal


def handler(job):
    job.progress("running")
    while True:
        signal.pause()
