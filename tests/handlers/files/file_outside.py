"""Returns a file outside its scratch."""

from stoker.worker import File


def handler(job):
    return {"file": File("/etc/hostname")}
