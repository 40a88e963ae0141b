"""Sits where `do` says and tells when it began, and which processes are its own. Without `do`, and in a
second attempt, it only tells when it began.

    asks      a loop in Python that asks whether it was cancelled, and notes in the file `note` when it heard
    deaf      a loop in Python that asks nothing          native    one match of a regular expression, for hours
    blocked   the same, with SIGTERM blocked              tree      programs of sessions of their own
"""

import os
import re
import signal
import subprocess
import time

SLEEPS = "trap '' TERM; sleep 3600 & sleep 3600 & echo $!; wait"


def handler(job):
    began = time.monotonic()
    do = job.input.get("do")
    if do is None or job.attempt > 1:
        return {"began": began}
    if do == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    own = tree() if do == "tree" else []
    job.emit({"began": began, "pids": [os.getpid(), *own]})
    if do in ("native", "blocked"):
        re.match(r"(a+)+$", "a" * 60 + "b")
    try:
        while do != "asks" or not job.cancelled:
            time.sleep(0 if do == "deaf" else 0.001)
    finally:
        with open(job.input["note"], "w") as note:
            note.write(str(time.monotonic()))
    job.raise_if_cancelled()


def tree():
    """A shell that ignores SIGTERM, and what it started; in a session of its own."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", SLEEPS], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return [shell.pid, int(shell.stdout.readline())]
