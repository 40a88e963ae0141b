"""Makes folders in folders in its scratch and in its home, deeper than any path may be long."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    before = os.getcwd()
    for folder in (job.scratch, os.environ["HOME"]):
        os.chdir(folder)
        for _ in range(1500):
            os.mkdir("folder")
            os.chdir("folder")
    os.chdir(before)
    return "deep"
