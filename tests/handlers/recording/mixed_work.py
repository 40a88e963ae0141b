"""One of several kinds of work; the result is a function of the input. Each start is noted in the file
`runs`.

    quick    answers                      slow    takes `ms` first
    stream   emits five pieces            file    hands over a file, `times` as large
    dies     kills its own worker, the first time it runs        raises    fails by its own error
"""

import os
import signal
import time

from stoker.worker import File


def handler(job):
    n, kind = job.input["n"], job.input["kind"]
    note(job.input["runs"], f"{job.id} {job.attempt}\n")
    result = {"n": n, "square": n * n, "attempt": job.attempt}
    if kind == "slow":
        time.sleep(job.input["ms"] / 1000)
    elif kind == "stream":
        for piece in range(5):
            job.emit({"n": n, "piece": piece})
    elif kind == "file":
        path = job.scratch / "made.txt"
        path.write_text(f"made for {n}" * job.input.get("times", 1))
        result["file"] = File(path, "text/plain")
    elif kind == "dies" and first_time(job.input["runs"] + f".died-{n}"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "raises":
        raise ValueError(f"{n} is refused")
    return result


def note(path, line):
    """One write: lines of several processes do not mix."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def first_time(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
