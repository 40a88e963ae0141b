"""Returns as many files as it is asked for."""

import os

from stoker.worker import File


def handler(job):
    if job.input == "pid":
        return os.getpid()
    files = []
    for n in range(job.input["files"]):
        path = job.scratch / f"{n}.txt"
        path.write_text(str(n))
        files.append(File(path))
    return files
