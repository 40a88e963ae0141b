"""Counts to `numbers`, one each 50 ms, and saves after each; a later attempt goes on from the save."""

import json
import os
import select

PAUSE_S = 0.05


def handler(job):
    found = json.loads(job.saved or b"[]")
    reader, writer = os.pipe()
    try:
        for number in range(len(found), job.input["numbers"]):
            job.raise_if_cancelled()
            job.emit({"number": number, "attempt": job.attempt})
            found.append(number)
            job.save(json.dumps(found).encode())
            select.select([reader], [], [], PAUSE_S)
    finally:
        os.close(reader)
        os.close(writer)
    return {"numbers": found}
