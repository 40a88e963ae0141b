"""Writes where it may: into its home and its scratch; and links out of its scratch to a folder of others."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    home = os.environ["HOME"]
    with open(f"{home}/left", "w") as file:
        file.write("for the next")
    os.symlink(job.input["others"], job.scratch / "link")
    os.makedirs(job.scratch / "own")
    return home
