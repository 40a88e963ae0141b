"""Prints `lines` lines with the time of each, one every `pause` seconds; with `flood`, so many more at
once."""

import time


def handler(job):
    for n in range(job.input["lines"]):
        job.raise_if_cancelled()
        print(f"{time.time():.6f} line {n}", flush=True)
        time.sleep(job.input.get("pause", 0.01))
    for n in range(job.input.get("flood", 0)):
        print(f"flood {n}")
    return {"printed": True}
