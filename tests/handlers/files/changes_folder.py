"""Goes into its scratch folder, deletes it under itself, and stays there."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    os.chdir(job.scratch)
    os.rmdir(job.scratch)
    return "gone"
