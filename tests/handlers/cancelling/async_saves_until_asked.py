"""The same, asynchronously."""

import asyncio


async def handler(job):
    job.save(b"first")
    job.progress("running")
    while not job.asked_to_yield:
        await asyncio.sleep(0.002)
    job.save(b"second")
