"""Emits a piece of each of `sizes` letters, `from` the loop's thread or another one."""

import asyncio


async def handler(job):
    for n, size in enumerate(job.input["sizes"]):
        piece = {"n": n, "text": "x" * size}
        if job.input.get("from") == "thread":
            await asyncio.to_thread(job.emit, piece)
        else:
            job.emit(piece)
        await asyncio.sleep(0)
    return {"pieces": len(job.input["sizes"])}
