"""A coroutine that leaves tasks behind: one waits for ever, one raises when its job is over."""

import asyncio
import os

KEPT = []


async def raises():
    await asyncio.sleep(0)
    raise RuntimeError("nobody awaits this")


async def handler(job):
    if job.input == "pid":
        return os.getpid()
    KEPT.append(asyncio.create_task(asyncio.sleep(3600)))
    asyncio.create_task(raises())
    return "left"
