"""Says that it runs, then works until it is cancelled. It waits on a pipe that nobody writes to."""

import os
import select


def handler(job):
    job.progress("running")
    reader, writer = os.pipe()
    try:
        while not job.cancelled:
            select.select([reader], [], [], 0.002)
        job.raise_if_cancelled()
    finally:
        os.close(reader)
        os.close(writer)
