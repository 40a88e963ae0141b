"""Starts a program that starts another; tells the worker and that other, and waits for the file `go`.

`orphan`: the program in between goes at once, and the other belongs to whoever adopts it.
"""

import os
import subprocess
import time


def handler(job):
    script = "sleep 3600 & echo $!" + ("" if job.input["orphan"] else "; wait")
    between = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True)
    job.emit({"worker": os.getpid(), "grandchild": int(between.stdout.readline())})
    if not job.input["orphan"]:
        between.wait()
    while not os.path.exists(job.input["go"]):
        job.raise_if_cancelled()
        time.sleep(0.01)
    between.stdout.close()
    between.wait()
    return {"attempt": job.attempt}
