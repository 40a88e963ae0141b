"""Emits a file with a chunk."""

from stoker.worker import File


def handler(job):
    path = job.scratch / "preview.txt"
    path.write_text("preview")
    job.emit({"preview": File(path)})
