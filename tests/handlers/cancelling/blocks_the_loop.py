"""A coroutine that never gives the loop a turn."""

import os


async def handler(job):
    if job.input == "pid":
        return os.getpid()
    job.progress("running")
    while True:
        pass
