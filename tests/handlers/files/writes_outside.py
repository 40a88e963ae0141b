"""Writes into its home and its scratch, tries the folders of others, and links out of its scratch to one."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    home = os.environ["HOME"]
    write(home)
    os.symlink(job.input["others"], job.scratch / "link")
    os.makedirs(job.scratch / "own")
    return {"home": home, "written": [folder for folder in job.input["tries"] if write(folder)]}


def write(folder):
    try:
        with open(f"{folder}/left", "w") as file:
            file.write("for the next")
    except OSError:
        return False
    return True
