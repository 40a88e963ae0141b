"""Emits a chunk of each of `sizes` characters, `from` the loop's thread or another one."""

import asyncio


async def handler(job):
    for n, size in enumerate(job.input["sizes"]):
        chunk = {"n": n, "text": "x" * size}
        if job.input.get("from") == "thread":
            await asyncio.to_thread(job.emit, chunk)
        else:
            job.emit(chunk)
        await asyncio.sleep(0)
    return {"chunks": len(job.input["sizes"])}
