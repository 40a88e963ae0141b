"""Is cancelled, and cleans up for an hour."""

import time


def handler(job):
    job.progress("running")
    try:
        while True:
            job.raise_if_cancelled()
            time.sleep(0.001)
    finally:
        time.sleep(3600)
