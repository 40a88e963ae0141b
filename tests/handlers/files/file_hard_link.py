"""Returns a hard link in its scratch to a file outside it, named by the input's `target`."""

import os

from stoker.worker import File


def handler(job):
    path = job.scratch / "linked"
    os.link(job.input["target"], path)
    return {"file": File(path)}
