"""Leaves a thread that emits once its job is over: when the next job asks for it, and tells what came of
it."""

import os
import threading

over = threading.Event()
errors = []


def late(job):
    over.wait()
    try:
        job.emit("late")
    except Exception as error:
        errors.append(str(error))


def handler(job):
    if job.input == "pid":
        return os.getpid()
    if job.input == "late":
        over.set()
        while not errors:
            job.raise_if_cancelled()
        return errors
    threading.Thread(target=late, args=[job], daemon=True).start()
    return "over"
