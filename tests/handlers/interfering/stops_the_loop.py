"""A coroutine that stops the loop it runs on."""

import asyncio
import os


async def handler(job):
    if job.input == "pid":
        return os.getpid()
    asyncio.get_running_loop().stop()
    await asyncio.sleep(3600)
