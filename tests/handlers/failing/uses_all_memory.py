"""Takes memory until there is none."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    job.progress("begun")
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)
