"""Returns a file that it never wrote."""

from stoker.worker import File


def handler(job):
    return {"file": File(job.scratch / "nothing.png")}
