"""Handlers of `bench/workers.py`: they return at once, or wait for `wait_s`."""

import asyncio
import time


def plain(job):
    if job.input["wait_s"]:
        time.sleep(job.input["wait_s"])


async def coroutine(job):
    if job.input["wait_s"]:
        await asyncio.sleep(job.input["wait_s"])
