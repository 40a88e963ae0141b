"""Returns its place in a trace, and a file with its prompt."""

from stoker.worker import File


def handler(job):
    path = job.scratch / "prompt.txt"
    path.write_text(job.input["prompt"])
    return {"traceparent": job.traceparent, "file": File(path, "text/plain")}
