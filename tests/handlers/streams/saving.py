"""Counts, a number each 50 ms, and saves after each. The first attempt never ends by itself; a later one goes
on from its save for 20 numbers."""

import itertools
import os
import select

MORE, PAUSE_S = 20, 0.05


def handler(job):
    begins = int(job.saved or b"0")
    numbers = itertools.count() if job.attempt == 1 else range(begins, begins + MORE)
    reader, writer = os.pipe()
    try:
        for number in numbers:
            job.raise_if_cancelled()
            job.emit({"number": number, "attempt": job.attempt})
            job.save(b"%d" % (number + 1))
            select.select([reader], [], [], PAUSE_S)
    finally:
        os.close(reader)
        os.close(writer)
    return {"count": number + 1}
