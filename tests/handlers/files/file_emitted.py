"""Emits a file with each of three chunks."""

from stoker.worker import File


def handler(job):
    for n in range(3):
        path = job.scratch / f"preview-{n}.txt"
        path.write_text(f"preview {n}")
        job.emit({"preview": File(path)})
    return {"previews": 3}
