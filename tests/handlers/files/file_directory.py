"""Returns a directory."""

from stoker.worker import File


def handler(job):
    return {"file": File(job.scratch)}
