"""A coroutine that wants a loop of its own."""

import asyncio
import os


async def handler(job):
    if job.input == "pid":
        return os.getpid()
    return asyncio.run(asyncio.sleep(0))
