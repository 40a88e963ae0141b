"""A plain function that forgets to await."""

import os


async def answer():
    return 42


def handler(job):
    if job.input == "pid":
        return os.getpid()
    return answer()
