"""Says that it runs, then waits for ever; the loop cancels it."""

import asyncio


async def handler(job):
    job.progress("running")
    await asyncio.get_running_loop().create_future()
