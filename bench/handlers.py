"""What `bench/workers.py` gives its python workers to do: nothing, or to wait for `wait_s`."""

import asyncio
import time


def plain(job):
    if job.input["wait_s"]:
        time.sleep(job.input["wait_s"])


async def coroutine(job):
    if job.input["wait_s"]:
        await asyncio.sleep(job.input["wait_s"])
