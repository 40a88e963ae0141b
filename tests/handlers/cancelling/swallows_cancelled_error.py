"""A coroutine that catches its cancellation and waits again."""

import asyncio


async def handler(job):
    job.progress("running")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
