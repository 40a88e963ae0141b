"""Returns a file below a folder that is a symbolic link to one outside its scratch."""

from stoker.worker import File


def handler(job):
    (job.scratch / "folder").symlink_to("/etc")
    return {"file": File(job.scratch / "folder" / "hostname")}
