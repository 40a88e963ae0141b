"""Returns a file that is a symbolic link to one outside its scratch."""

from stoker.worker import File


def handler(job):
    path = job.scratch / "link.txt"
    path.symlink_to("/etc/hostname")
    return {"file": File(path)}
