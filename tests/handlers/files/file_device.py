"""Returns a device."""

from stoker.worker import File


def handler(job):
    return {"file": File("/dev/zero")}
