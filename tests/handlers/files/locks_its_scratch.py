"""Takes every right to its scratch folder away, with files in it."""

import os


def handler(job):
    if job.input == "pid":
        return os.getpid()
    below = job.scratch / "below"
    below.mkdir()
    (below / "file").write_text("kept")
    below.chmod(0)
    job.scratch.chmod(0)
    return "locked"
