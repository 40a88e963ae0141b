"""Returns text that is not Unicode: what `os.fsdecode` makes of a file's name."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    return {"name": os.fsdecode(b"caf\xe9")}
