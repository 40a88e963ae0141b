"""Hands over a file once the file `go` exists."""

import os
import time

from stoker.worker import File


def handler(job):
    job.emit("running")
    while not os.path.exists(job.input["go"]):
        job.raise_if_cancelled()
        time.sleep(0.01)
    path = job.scratch / "hello.txt"
    path.write_text(job.input["text"])
    return {"greeting": File(path, "text/plain")}
