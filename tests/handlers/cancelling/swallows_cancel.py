"""Catches everything, its own cancel too, and tries again."""

import time


def handler(job):
    job.progress("running")
    while True:
        try:
            job.raise_if_cancelled()
            time.sleep(0.001)
        except BaseException:
            pass
