"""Returns a file beside plain values, and measures its letters."""

from stoker.worker import File


def handler(job):
    text = job.input.get("text", "hello")
    path = job.scratch / "hello.txt"
    path.write_text(text)
    job.measure("letters", len(text))
    return {"greeting": File(path, "text/plain"), "length": len(text)}
