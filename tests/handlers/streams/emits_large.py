"""Emits a chunk of each of `sizes` characters, tells how many, and then returns, raises or waits (`then`)."""

import time


def handler(job):
    sizes = job.input.get("sizes", [3_000_000, 10])
    for n, size in enumerate(sizes):
        job.emit({"n": n, "text": "x" * size})
        if job.cancelled:
            return None
    if job.input.get("then") == "raise":
        raise ValueError("after its chunks")
    while job.input.get("then") == "wait":
        job.raise_if_cancelled()
        time.sleep(0.01)
    return {"chunks": len(sizes)}
