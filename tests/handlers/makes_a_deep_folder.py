"""Makes folders in folders in its scratch, deeper than any path may be long."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    home = os.getcwd()
    os.chdir(job.scratch)
    for _ in range(3000):
        os.mkdir("a" * 8)
        os.chdir("a" * 8)
    os.chdir(home)
    return "deep"
