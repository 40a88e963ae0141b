"""Waits for an hour where `do` is `waits`, tells when it began, and notes in the file `note` when it was
cancelled. Without `do` it only tells when it began."""

import asyncio
import os
import time


async def handler(job):
    began = time.monotonic()
    if job.input.get("do") is None:
        return {"began": began}
    job.emit({"began": began, "pids": [os.getpid()]})
    try:
        await asyncio.sleep(3600)
    finally:
        with open(job.input["note"], "w") as note:
            note.write(str(time.monotonic()))
